"""What a batch of a Structured query is to a sink."""

from __future__ import annotations

import threading

from pyspark.sql import DataFrame

from penstock.errors import ConfigError, SinkError
from penstock.exactly_once import enter_run
from penstock.model import OutputBatch, check_name
from penstock.structured.running_query import QueryRun, has_run_before, plan_of_batch, run_of

__all__ = ["note_write", "query_batch"]

_QUERY_ID = "sql.streaming.queryId"
"""Spark sets it in the thread that calls the function of ``foreachBatch``."""
_lock = threading.Lock()
_first_batches: dict[str, int] = {}
"""Run -> the first batch that a sink was asked for: it alone may be of an earlier run."""
_written: dict[tuple[str, str, str], tuple[str, int]] = {}
"""Sink, location and output -> the run that wrote last, and its batch."""


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


def note_write(sink: str, output: OutputBatch) -> None:
    """Note that this run has written a batch to a sink, or found it written there.

    Args:
        sink: what tells apart sinks that a program may write to.
        output: the batch.

    Raises:
        SinkError: the run has done so before. The later write has other records, which the sink
            would take for those that it has.
    """
    if not output.run:
        return
    key, written = (sink, output.location_id, output.output), (output.run, output.batch_id)
    with _lock:
        again = _written.get(key) == written
        _written[key] = written
    if again:
        raise SinkError(
            f"output {output.output!r} has written batch {output.batch_id} already in this run, so "
            "the records of a second write are not written",
            operation="write batch",
            ids={"output": output.output, "batch": output.batch_id},
            hint="give each write of a batch to one folder or table an output of its own: "
            'sink.write(df, query_batch(df, batch_id, "late"))',
        )
