"""Listens to queries on the driver: from their progress to the limits of their next batches.

    query started    what it is -> the readers of journals
                     the rate that its checkpoint keeps -> the first batch's limit
    batch ended      records, durations -> estimator -> the next batch's limit, and the checkpoint
    query ended      its files are removed

Spark calls ``onQueryStarted`` before the query plans its first batch, and the others while the
query runs. Nothing here may fail a query: what goes wrong is logged, and the last limit holds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from penstock.checkpoint import CheckpointLocation
from penstock.errors import PenstockError
from penstock.rate import RATES_FILE
from penstock.storage import Storage, open_existing, open_storage
from penstock.structured.options import max_offsets
from penstock.structured.query_rates import (
    Progress,
    QueryRates,
    SourceProgress,
    first_limit,
)
from penstock.structured.rate_files import (
    DEFAULT_INTERVAL_MS,
    RateFiles,
    interval_of_options,
    settings_of_options,
)
from penstock.structured.running_query import running_query
from penstock.structured.session import RETAINED, QueryFacts, read_by, tell_query
from penstock.structured.stream_reader import REPORT

_FORMATS = ("penstock", "penstock-kafka")
_ASKED_S = 10.0
"""The process that plans a query is there by then, and has asked; else it never may."""
_log = logging.getLogger(__name__)


@dataclass
class _Query:
    root: str
    trigger_ms: int
    rates: QueryRates | None = None
    """None before it shows that it has back pressure."""
    readers: set[str] = field(default_factory=set)


class RateListener(StreamingQueryListener):
    """The controller of all queries of a session that have back pressure.

    Args:
        spark: the session.
        folder: see RateFiles.
        retained: how many batches a history has.
        show: called with the checkpoint of each query that starts.
    """

    def __init__(
        self, spark: SparkSession, folder: str, retained: int, show: Callable[[str], None]
    ) -> None:
        self._show = show
        self._session = spark
        self._folder = folder
        self._files = RateFiles(folder)
        self._retained = retained
        self._queries: dict[str, _Query] = {}
        self._unknown: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        """Set the first limits of a query that starts again."""
        self._safely(lambda: self._start(str(event.id), str(event.runId)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Set the limits of the next batch."""
        self._safely(lambda: self._learn(event.progress))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget the query."""
        query = self._queries.pop(str(event.runId), None)
        for reader in () if query is None else query.readers:
            self._files.forget(reader)

    def _start(self, query_id: str, run_id: str) -> None:
        found = running_query(self._session, query_id)
        if found is None:
            return
        self._queries[run_id] = _Query(found.root, found.trigger_ms)
        retained = int(str(self._session.conf.get(RETAINED)))
        for each in reversed(found.sources):  # of two that are given the same, the first one's
            facts = QueryFacts(query_id, found.root, retained, each.place)
            wait_s = _ASKED_S if each.format.lower() in _FORMATS else 0.0
            tell_query(self._folder, read_by(each.options), facts, wait_s)
        self._show(found.root)
        if not _has_history(found.root):
            return
        storage = _open(found.root)
        for place, offset in () if storage is None else _newest_offsets(found.root):
            assert storage is not None
            interval_ms = found.trigger_ms or DEFAULT_INTERVAL_MS
            allowed = first_limit(storage, offset, interval_ms, str(place))
            if allowed is not None:
                self._files.allow_first(offset, allowed)

    def _learn(self, progress: StreamingQueryProgress) -> None:
        query = self._queries.get(str(progress.runId))
        if query is None:
            return
        batch = Progress(
            progress.batchId, _ms(progress.timestamp), progress.durationMs["triggerExecution"]
        )
        for reader, source, end in self._sources(progress):
            interval_ms = (
                interval_of_options(source.options) or query.trigger_ms or DEFAULT_INTERVAL_MS
            )
            settings = settings_of_options(source.options)
            if (most := max_offsets(source.options)) is not None:
                settings = replace(settings, max_rate=1000 * most / interval_ms)
            if query.rates is None:
                query.rates = QueryRates(_open(query.root), query.trigger_ms, self._retained)
            allowed = query.rates.on_batch(batch, source, settings, interval_ms)
            self._files.allow(reader, end, allowed)
            query.readers.add(reader)
        if query.rates is not None:
            query.rates.ended(batch)

    def _sources(
        self, progress: StreamingQueryProgress
    ) -> Iterator[tuple[str, SourceProgress, Any]]:
        """Yield the readers with back pressure, with the end of the batch in each."""
        for each in progress.sources:
            report = _object(each.latestOffset).get(REPORT)
            if report is None:
                continue
            found = self._files.source(report["reader"])
            if found is None:
                self._note_unknown(report["reader"])
                continue
            name, options = found
            # Spark counts rows, which may be ranges, or Kafka's records without its gaps.
            records = report["records"] if each.numInputRows else 0
            end = _object(each.endOffset)
            source = SourceProgress(name, options, records, report["limit"])
            yield report["reader"], source, end

    def _note_unknown(self, reader: str) -> None:
        """Log once that a reader's file is gone; its next batch writes it again."""
        if reader not in self._unknown:
            self._unknown.add(reader)
            _log.warning(
                "The file of reader %s is gone from %s, so its rate does not follow this batch; "
                "exclude the folder from what cleans it",
                reader,
                self._folder,
            )

    def _safely(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # a listener's error would be swallowed by Spark, without a word
            _log.exception("The rate of a query does not change")


def _open(root: str) -> Storage | None:
    """Return a query's checkpoint, None on a file system that only Hadoop has."""
    try:
        return open_storage(root)
    except PenstockError as e:
        _log.warning("The rates of a query are not kept in its checkpoint: %s", e)
        return None


def _has_history(root: str) -> bool:
    """Whether a query's checkpoint has rates; it may be on a file system that only Hadoop has."""
    try:
        found = open_existing(root, operation="read rates", hint="")
        return found.exists(RATES_FILE)
    except PenstockError:
        return False


def _newest_offsets(root: str) -> list[tuple[int, Any]]:
    """Return the offset of each source, by its place, where the query's next batch begins."""
    storage = open_existing(root, operation="read offset log", hint="")
    newest = CheckpointLocation(storage).offsets.latest()
    sources = enumerate(() if newest is None else newest[1].sources)
    return [(place, json.loads(line)) for place, line in sources if line]


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _ms(timestamp: str) -> int:
    """Return a progress's time, ``2026-11-22T19:00:00.123Z``, in milliseconds."""
    when = datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    return round(when.timestamp() * 1000)
