"""What Spark's Python API does not tell of a running query. Thin glue over py4j."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

__all__ = ["QueryRun", "RunningQuery", "has_run_before", "plan_of_batch", "run_of", "running_query"]


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query."""

    root: str
    """Its checkpoint location."""
    trigger_ms: int
    """Its trigger interval, 0 for none."""
    journals: Sequence[tuple[str, str, str]]
    """Journal, stream and consumer of its sources over journals, as they are in the options."""


@dataclass(frozen=True, slots=True)
class QueryRun:
    """A run of a query, as ``exactly_once.Run``."""

    spark: SparkSession
    query_id: str

    def use_sink(self, output: str, sink: str) -> None:
        """See Run: batches run one by one, a failed one ends the run, a rewind gives new ids."""

    def plan_of(self, batch_id: int) -> str | None:
        """See Run."""
        return plan_of_batch(self.spark, self.query_id, batch_id) or None


def running_query(spark: SparkSession, query_id: str) -> RunningQuery | None:
    """Return a query by its id, None if it has ended."""
    query = _execution(spark, query_id)
    if query is None:
        return None
    trigger = query.trigger()
    is_timed = trigger.getClass().getSimpleName() == "ProcessingTimeTrigger"
    return RunningQuery(
        query.resolvedCheckpointRoot(), trigger.intervalMs() if is_timed else 0, _journals(query)
    )


def plan_of_batch(spark: SparkSession, query_id: str, batch_id: int) -> str:
    """Return when a batch was planned, as a text; empty if that is not known.

    It is in the batch's entry of the offset log, so it is the same whenever the batch runs.
    """
    try:
        query = _execution(spark, query_id)
        entry = None if query is None else query.offsetLog().get(batch_id)
        known = None if entry is None or entry.isEmpty() else entry.get().metadataOpt()
        return "" if known is None or known.isEmpty() else str(known.get().batchTimestampMs())
    except Py4JError:  # another release of Spark tells it in another way
        return ""


def run_of(spark: SparkSession, query_id: str) -> str:
    """Return the id of a query's run; empty if that is not known.

    Spark has it as the job group of the run's thread, too, where a program may set another one.
    """
    try:
        query = _execution(spark, query_id)
        return "" if query is None else str(query.runId())
    except Py4JError:  # another release of Spark tells it in another way
        return ""


def has_run_before(spark: SparkSession, query_id: str, batch_id: int) -> bool:
    """Whether this run of a query has ended a batch before this one; False if that is not known."""
    try:
        query = _execution(spark, query_id)
        progress = None if query is None else query.lastProgress()
        return progress is not None and bool(progress.batchId() < batch_id)
    except Py4JError:  # another release of Spark tells it in another way
        return False


def _execution(spark: SparkSession, query_id: str) -> Any:
    """Return Spark's execution of a query, None without one; also from its own session."""
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    running = session.sharedState().activeStreamingQueries()
    return running.get(jvm.java.util.UUID.fromString(query_id))


def _journals(query: Any) -> list[tuple[str, str, str]]:
    leaves = query.analyzedPlan().collectLeaves()
    found = []
    for leaf in map(leaves.apply, range(leaves.size())):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2":
            options = leaf.extraOptions()
            names = tuple(options.get(name) for name in ("journal", "stream", "consumer"))
            if None not in names:
                found.append(names)
    return found
