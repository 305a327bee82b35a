"""Tells of the queries of a session as they run: a line in the log for each batch, and /metrics.

What Spark's own metrics system has of a query stays there (``spark.sql.streaming.metricsEnabled``);
a Python program cannot add to it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from penstock.conf import MetricsSettings
from penstock.logs import Event
from penstock.metrics import BatchMetrics, Exporter, exporter_for, serve_metrics
from penstock.status import SharedStatus
from penstock.structured.running_query import running_query
from penstock.structured.stream_reader import REPORT

_log = logging.getLogger(__name__)
_MOST_NAME = 80
_lock = threading.Lock()
_exporters: dict[MetricsSettings, Exporter | None] = {}
"""By where they are served: sessions of one process share its SparkContext, and so its port."""


def exporter_of(settings: MetricsSettings) -> Exporter | None:
    """Return what gathers the metrics of this process; served until it ends if there is a port.

    Raises:
        ConfigError: they cannot be served; see MetricsServer.
    """
    with _lock:
        if settings not in _exporters:
            exporter = exporter_for(settings)
            serve_metrics(settings, exporter)
            _exporters[settings] = exporter
        return _exporters[settings]


class ProgressListener(StreamingQueryListener):
    """Logs and counts the batches of all queries of a session. It never fails a query.

    Args:
        spark: the session.
        exporter: gathers the counts; None for none.
    """

    def __init__(self, spark: SparkSession, exporter: Exporter | None) -> None:
        self._session = spark
        self._exporter = exporter
        self._running: dict[str, tuple[BatchMetrics, SharedStatus]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        """Show a query."""
        found = running_query(self._session, str(event.id))
        if self._exporter is None or found is None:
            return
        name = event.name or str(event.id)
        batches, location = BatchMetrics(name, found.trigger_ms), SharedStatus([found.root])
        self._exporter.add_program(batches)
        self._exporter.add_locations(location, program=name)
        self._running[str(event.runId)] = batches, location

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Log and count a batch."""
        progress = event.progress
        took_ms = progress.durationMs.get("triggerExecution")
        _log.info(
            Event(
                "batch",
                {
                    "query": progress.name or str(progress.id),
                    "batch_id": progress.batchId,
                    "batch_time": progress.timestamp,
                    "result": "committed",
                    "records": progress.numInputRows,
                    "processing_ms": took_ms,
                },
            )
        )
        if (known := self._running.get(str(progress.runId))) is not None:
            records: dict[str, int] = {}
            limits: dict[str, float] = {}
            for each in progress.sources:
                name, report = _name(each), _report(each)
                records[name] = records.get(name, 0) + _records(each, report)
                if "limit" in report:
                    limits[name] = report["limit"]
            known[0].planned(records, limits, {})
            known[0].committed(records, None, took_ms)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Note that a query has nothing to do."""
        if (known := self._running.get(str(event.runId))) is not None:
            known[0].idle()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Show a query no longer, unless it failed."""
        if (known := self._running.pop(str(event.runId), None)) is None:
            return
        batches, location = known
        assert self._exporter is not None
        failed = event.exception is not None
        if failed:
            batches.failed(None, None)
        self._exporter.remove_program(batches, failed=failed)
        self._exporter.remove(location)


def _name(source: SourceProgress) -> str:
    """Return a source's name: its stream or topic if its offset has one, else what Spark says."""
    end = _parsed(source.endOffset)
    if len(end) == 1 and all(isinstance(value, dict) for value in end.values()):
        return next(iter(end))
    return str(source.description)[:_MOST_NAME]


def _report(source: SourceProgress) -> dict[str, Any]:
    """Return what one of penstock's sources with back pressure adds to its progress."""
    report = _parsed(source.latestOffset).get(REPORT)
    return report if isinstance(report, dict) else {}


def _records(source: SourceProgress, report: Mapping[str, Any]) -> int:
    """Return its records: Spark counts rows, which may be ranges."""
    return int(report.get("records", source.numInputRows)) if source.numInputRows else 0


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
