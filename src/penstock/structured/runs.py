"""Notes in a query's checkpoint its trigger, its process, and what became of batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.checkpoint import CheckpointLocation
from penstock.checkpoint.query_runs import QueryRuns, read_query_runs, write_query_runs
from penstock.root_cause import raised_by_worker
from penstock.storage import Storage, open_existing
from penstock.structured.running_query import RunningQuery, running_query

_log = logging.getLogger(__name__)


class RunListener(StreamingQueryListener):
    """Writes at the begin and the end of each run; a batch costs nothing. Fails no query.

    Spark tells of a failure in a thread of its own, and a program that the failure ends may be gone
    before: so ``close``, at the end of the process, asks each query of which no end was told.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark
        self._newest: dict[str, tuple[str, RunningQuery]] = {}
        """The newest run that has not ended, by checkpoint location."""
        self._lock = threading.Lock()
        """Spark tells of a run's begin and of an earlier one's end in two threads, in any order."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's names)
        """Note a run, and the batch that it runs again."""
        found = running_query(self._session, str(event.id))
        if found is None:
            return
        spark_ui = self._session.sparkContext.uiWebUrl
        with self._lock:
            self._newest[found.root] = str(event.runId), found
            _note(
                found.root,
                lambda runs, batch: runs.begun(found.trigger_ms, spark_ui, batch, event.name),
            )

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Do nothing: Spark's logs tell of batches that were committed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Note the end of a run, unless a later run has begun already."""
        with self._lock:
            root = next((k for k, v in self._newest.items() if v[0] == str(event.runId)), None)
            if root is not None:
                del self._newest[root]
                _note_end(root, event.exception)

    def close(self) -> None:
        """Note the ends of the runs of which Spark has not told it."""
        with self._lock:
            for root, (_, query) in self._newest.items():
                failure = None
                with suppress(Exception):  # the JVM has ended before this process does
                    failure = query.failure()
                _note_end(root, failure)
            self._newest.clear()


def _note_end(root: str, error: str | None) -> None:
    if error is None:
        _note(root, lambda runs, _: replace(runs, has_ended=True))
    else:
        why = raised_by_worker(error) or error.partition("\n")[0]
        _note(root, lambda runs, batch: runs.ended_in(batch, why))


def _note(root: str, change: Callable[[QueryRuns, int | None], QueryRuns]) -> None:
    try:
        storage = open_existing(root, operation="note run", hint="")
        write_query_runs(storage, change(read_query_runs(storage), _uncommitted(storage)))
    except Exception:  # a file system that only Hadoop has; Spark would swallow it without a word
        _log.debug("A run of the query at %s is not noted", root, exc_info=True)


def _uncommitted(storage: Storage) -> int | None:
    """Return the newest batch that was planned, unless it is committed."""
    location = CheckpointLocation(storage)
    planned, committed = location.offsets.latest(), location.commits.latest()
    if planned is None or (committed is not None and committed[0] >= planned[0]):
        return None
    return planned[0]
