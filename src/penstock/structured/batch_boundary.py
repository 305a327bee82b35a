"""Ends a query between two batches. Thin glue over py4j.

``StreamingQuery.stop`` interrupts the query's thread, so the batch that it runs is cut short, and
runs again after a restart. Here the query first loses its sources, so that it plans no other batch:

    no sources -> [the batch that runs, to its commit] -> a trigger that finds nothing, or a sleep
    until the next one -> stop: it interrupts no batch -> the sources are stopped

Whether that came out is what the query's logs say.

Source: ``org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution``, where a batch is
planned by ``constructNextBatch`` alone, from ``uniqueSources``. To set the query's state to
terminated, as ``stop`` does, and not to interrupt, is not enough: a batch that is planned is left
when it sees that.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from penstock.structured.receivers import RunningReceivers
from penstock.structured.session import check_in_driver

__all__ = ["graceful_stop"]

_log = logging.getLogger(__name__)
_POLL_S = 0.02
_SLEEP = "waitTillTime"
"""The method of Spark's clock in which a query waits for its next trigger."""


def graceful_stop(
    query: StreamingQuery, timeout: float = 60.0, receivers: RunningReceivers | None = None
) -> bool:
    """End a query at the end of the batch that it runs, which is committed then.

    So its checkpoint has no batch that is planned and not done, and a restart runs none again. What
    the query has not taken waits in its source.

    Args:
        query: of any source and trigger in micro-batches. One with processing-time timeouts plans
            a batch at each trigger, with or without records, and is interrupted in the end.
        timeout: seconds for all of this; then the query is interrupted, as by ``query.stop()``,
            which cancels its jobs, and waits for a function of ``foreachBatch`` to return.
        receivers: what to stop first, so that a source is acked all that is stored.

    Returns:
        Whether the query ended between two batches; False when it was interrupted.

    Raises:
        ConfigError: the query is one of Spark Connect.
        StreamingQueryException: the query has failed.
        ReceiverError: a receiver did not end in time; the query was ended nevertheless.
    """
    deadline_s = time.monotonic() + timeout
    check_in_driver(query, "_jsq", "stop query")
    try:
        if receivers is not None:
            receivers.stop(timeout)
    finally:
        is_whole = _end(query, deadline_s)
    error = query.exception()
    if error is not None:
        raise error
    return is_whole


def _end(query: Any, deadline_s: float) -> bool:
    execution = query._jsq.streamingQuery()
    # Until then its sources are not known.
    execution.awaitInitialization(max(1, round(1000 * (deadline_s - time.monotonic()))))
    sources = execution.uniqueSources()
    set_sources = getattr(execution, "uniqueSources_$eq")
    if query.isActive:
        set_sources(sources.empty())
        is_idle = _wait_idle(execution, deadline_s)
        if not is_idle:
            set_sources(sources)
        query.stop()
        if is_idle:
            _stop_all(sources)
    return _newest(execution.offsetLog()) == _newest(execution.commitLog())


def _wait_idle(execution: Any, deadline_s: float) -> bool:
    """Wait until the query runs no batch, and return whether that came in time.

    With the sources that it had it may have found nothing once more: no batch was planned then.
    """
    thread = execution.queryExecutionThread()
    getattr(execution, "noNewData_$eq")(False)
    while thread.isAlive() and not execution.noNewData() and not _sleeps(thread):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _sleeps(thread: Any) -> bool:
    """Whether the thread of a query waits for its next trigger."""
    return any(frame.getMethodName() == _SLEEP for frame in thread.getStackTrace())


def _stop_all(sources: Any) -> None:
    """Stop the sources, as the query does with those that it has."""
    each = sources.keysIterator()
    while each.hasNext():
        source = each.next()
        try:
            source.stop()
        except Py4JError as error:
            _log.warning("A source of the query was not stopped: %s", error)


def _newest(log: Any) -> int:
    """Return the newest batch id in one of a query's logs, -1 if it has none."""
    latest = log.getLatestBatchId()
    return int(latest.get()) if latest.isDefined() else -1
