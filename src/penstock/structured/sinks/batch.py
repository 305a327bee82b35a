"""What a batch of a Structured query is to a sink."""

from __future__ import annotations

import threading

from pyspark.sql import DataFrame

from penstock.errors import ConfigError
from penstock.exactly_once import enter_run
from penstock.model import OutputBatch, check_name
from penstock.structured.running_query import QueryRun, has_run_before, plan_of_batch, run_of

_QUERY_ID = "sql.streaming.queryId"
"""Spark sets it in the thread that calls the function of ``foreachBatch``."""
_lock = threading.Lock()
_first_batches: dict[str, int] = {}
"""Run -> the first batch that a sink was asked for: it alone may be of an earlier run."""


def query_batch(df: DataFrame, batch_id: int, output: str = "foreachBatch") -> OutputBatch:
    """Return what sinks know a batch of a Structured query by, in a function of ``foreachBatch``.

    The query's id is in the metadata of its checkpoint location: it is the same in each run.

    Args:
        df: the batch, as the function gets it.
        batch_id: likewise.
        output: tells apart what one query writes to one table or folder in several ways.

    Raises:
        ConfigError: no query calls this thread, or the name is not allowed.
    """
    context = df.sparkSession.sparkContext
    query_id = context.getLocalProperty(_QUERY_ID)
    if query_id is None:
        raise ConfigError(
            f"batch {batch_id} has no query in this thread, so no sink can identify it",
            operation="write batch",
            ids={"output": output, "batch": batch_id},
            hint="call this in the function of foreachBatch itself, and pass its result on; "
            "elsewhere build OutputBatch(<an id that each run has>, <output>, <batch id>, "
            "plan=<when it was planned>)",
        )
    run = run_of(df.sparkSession, query_id)
    with _lock:
        first = _first_batches.setdefault(f"{query_id}/{run}", batch_id)
    is_first = first == batch_id and not has_run_before(df.sparkSession, query_id, batch_id)
    name = check_name("output", output)
    plan = plan_of_batch(df.sparkSession, query_id, batch_id)
    enter_run(query_id, run, QueryRun(df.sparkSession, query_id))
    return OutputBatch(query_id, name, batch_id, is_first, run, plan)
