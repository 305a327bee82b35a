"""What Spark's Python API does not tell of a running query. Thin glue over py4j."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class QuerySource:
    """A source of a query."""

    place: str
    options: Mapping[str, str]
    format: str = ""


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query."""

    root: str
    """Its checkpoint location."""
    trigger_ms: int
    """Its trigger interval, 0 for none."""
    sources: Sequence[QuerySource]
    """Its sources, each by its place: Spark's ``sources/<place>``."""
    execution: Any = None
    """Spark's."""

    def failure(self) -> str | None:
        """Return the error that ended it, None for none."""
        error = self.execution.exception()
        return str(error.get().toString()) if error.isDefined() else None


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
        query.resolvedCheckpointRoot(),
        trigger.intervalMs() if is_timed else 0,
        _sources(query),
        query,
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


def _sources(query: Any) -> list[QuerySource]:
    """Return the sources of the second kind, numbered with the others as Spark does it.

    Source: ``MicroBatchExecution.logicalPlan``.
    """
    leaves = query.analyzedPlan().collectLeaves()
    numbered: list[Any] = []
    found = []
    for leaf in map(leaves.apply, range(leaves.size())):
        if not leaf.isStreaming() or any(leaf.equals(other) for other in numbered):
            continue
        numbered.append(leaf)
        if leaf.getClass().getSimpleName() == "StreamingRelationV2":
            options = dict(leaf.extraOptions().asCaseSensitiveMap())
            place = _given_name(leaf) or str(len(numbered) - 1)
            found.append(QuerySource(place, options, str(leaf.sourceName())))
    return found


def _given_name(leaf: Any) -> str | None:
    """Return the name that a program gave a source, as Spark 4.3 can have it."""
    try:
        name = leaf.sourceIdentifyingName()
        return str(name.name()) if name.getClass().getSimpleName() == "UserProvided" else None
    except Py4JError:
        return None
