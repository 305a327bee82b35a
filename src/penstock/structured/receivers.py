"""Receivers for Structured queries: those of DStream programs, under the same tracker.

Their stream is read by queries of this session, or of any other. Receivers and queries know
nothing of each other but the journal: a query that ends leaves them running, and so does one that
falls behind.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.conf import StreamingSettings
from penstock.driver.feed import ReceiverFeed, named_receivers, receiver_settings, shared_format
from penstock.driver.runner import status_of_run
from penstock.driver.shared_location import check_shared
from penstock.driver.spark import hadoop_location, has_executors
from penstock.driver.tracker import ReceiverTracker
from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.rate.input_rate import InputRate
from penstock.receivers import Receiver, ReceiverTask, Status
from penstock.storage import open_storage
from penstock.structured.session import check_in_driver

_log = logging.getLogger(__name__)
_STARTING = "start receivers"
_ANY_INTERVAL_MS = 1000
"""A limit that no batch changes does not depend on the length of batches."""
_running: list[RunningReceivers] = []
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class ReceiverStatus:
    """A receiver, as known to the driver."""

    name: str
    """Its name in the journal: ``r0``, ``r1``, ..., in the order in which they were first given."""
    state: Literal["starting", "started", "restarting", "stopped"]
    host: str = ""
    """Where it runs, empty before it runs."""
    process_id: int | None = None
    listening_at: str | None = None
    """The URL at which it can be reached, if others connect to it."""
    last_error: str | None = None


def start_receivers(
    spark: SparkSession,
    receivers: Receiver | Sequence[Receiver],
    journal: str | os.PathLike[str],
    stream: str,
) -> RunningReceivers:
    """Start receivers that store into a stream of a journal, in long tasks on the executors.

    Returns before they receive. The stream exists then, so queries can be started. Receivers of
    earlier runs that have the stream, also those of a DStream program or of another driver that
    is alive, publish what they hold and end; the new ones continue at their positions.

    A receiver that ends is started again, with back-off, on whatever executor has the fewest. The
    settings are those of DStream programs (``spark.streaming.blockInterval``,
    ``spark.streaming.receiver.maxRate``, ``spark.penstock.journal.*``, ...), at this call.

    Args:
        spark: the session, in the driver's process; they end when it is stopped.
        receivers: one receiver, or several of one schema. Each takes a task slot.
        journal: its path or URL, which the executors share with the driver.
        stream: its name there; the stream is created if it does not exist.

    Raises:
        ConfigError: the receivers would take every task slot; their schemas differ, or differ from
            the stream's; they store pickles, which no query reads; this is Spark Connect.
        FencedError: another driver started receivers of the stream at the same time.
        UnsharedPathError: an executor does not share the journal.
        StorageError, DamagedBlockError: the journal cannot be used, or the end of an earlier
            receiver's records is unknown.
    """
    check_in_driver(spark, "_jsparkSession", _STARTING)
    named = named_receivers(receivers, _STARTING)
    record_format = shared_format(list(named.values()), _STARTING)
    if record_format.kind == "pickle":
        raise _pickles(stream, record_format)
    storage = open_storage(hadoop_location(os.fspath(journal)))
    sc = spark.sparkContext
    if has_executors(sc):
        check_shared(sc, storage)
    feed = ReceiverFeed(named, JournalStream(storage, stream, record_format))
    return RunningReceivers(sc, feed, StreamingSettings.from_conf(sc.getConf()))


class RunningReceivers:
    """The receivers that one call of ``start_receivers`` has started.

    They end with ``stop``, when the process ends in order, or with the session.
    """

    def __init__(self, sc: SparkContext, feed: ReceiverFeed, settings: StreamingSettings) -> None:
        limit = InputRate(_ANY_INTERVAL_MS, settings.rate, None, len(feed.receivers))
        self._failures = _Failures()
        self._error: BaseException | None = None
        self._context = sc
        with _lock:
            beside = [other._count() for other in _running if other._context is sc]
            self._tracker = ReceiverTracker(
                sc,
                [feed],
                receiver_settings(settings, feed.journal.storage.url),
                self._failures,
                self._note,
                lambda stream: limit.receive_limit(),
                others=sum(beside),
            )
            JournalStream.create(feed.journal.storage, feed.journal.name, feed.journal.format)
            self._tracker.start()
            _running.append(self)
        atexit.register(self._stop_at_exit)

    @property
    def error(self) -> BaseException | None:
        """Why a receiver ended for good: a FencedError if a later run took it over."""
        return self._error

    def status(self) -> list[ReceiverStatus]:
        """Return the status of each receiver, as it last said it, and as its task ended."""
        running = {task.name for task in self._tracker.running}
        return [self._failures.status(task, task.name in running) for task in self._failures.tasks]

    def stop(self, timeout: float = 20.0) -> None:
        """Have all of them publish and ack what they hold, and end; wait for that.

        What a source was acked is stored, whether this is called or not. Does nothing if they
        have ended.

        Args:
            timeout: seconds.

        Raises:
            ReceiverError: one did not end in time, and its task was cancelled.
        """
        atexit.unregister(self._stop_at_exit)
        with _lock:
            if self in _running:
                _running.remove(self)
        self._tracker.stop(timeout)

    def _count(self) -> int:
        return len(self._tracker.running)

    def _note(self, error: BaseException) -> None:
        self._error = self._error or error

    def _stop_at_exit(self) -> None:
        try:
            self.stop()
        except Exception as error:
            _log.warning("Receivers were not stopped in order: %s", error)


class _Failures:
    """The watch of these receivers: their tasks, and how these ended."""

    def __init__(self) -> None:
        self.tasks: list[ReceiverTask] = []
        self._failed: dict[str, tuple[str, Status | None]] = {}
        """Its error, and what the process said last that has ended: it stays in the file."""

    def begin(self, tasks: Sequence[ReceiverTask]) -> None:
        self.tasks = list(tasks)

    def task_failed(self, task: ReceiverTask, error: str, now_ms: int) -> None:
        self._failed[task.name] = error, status_of_run(task)

    def end(self) -> None:
        pass

    def status(self, task: ReceiverTask, is_running: bool) -> ReceiverStatus:
        """Return a receiver's status."""
        error, over = self._failed.get(task.name, (None, None))
        said = status_of_run(task)
        if said is None or said == over:
            waits: Literal["starting", "restarting"] = "starting" if error is None else "restarting"
            return ReceiverStatus(task.name, waits if is_running else "stopped", last_error=error)
        return ReceiverStatus(
            task.name,
            said.state if is_running else "stopped",
            said.host,
            said.pid,
            said.listening_at,
            said.last_error or error,
        )


def _pickles(stream: str, record_format: RecordFormat) -> ConfigError:
    return ConfigError(
        f"the receivers store {record_format!r}, which no query reads",
        operation=_STARTING,
        ids={"stream": stream},
        hint="give them a schema: text, bytes, or columns",
    )
