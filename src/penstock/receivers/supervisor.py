"""The supervisor: runs one receiver in this process, in front of a journal writer.

It lives as long as the receiver shall: inside a long Spark task on an executor, or in a process of
its own. All decisions are taken by one thread, the one that called ``run``; receivers only leave
events for it::

    open writer (seals all earlier epochs) -> onStart -> running
        restart asked, onStart failed   ->  onStop, flush, back-off, onStart
        writer broken                   ->  onStop, new writer, back-off, onStart
        writer fenced, parent gone,
        order of another run            ->  onStop, end, nothing more is published
        stop asked, by order or by the receiver ->  onStop, publish what is buffered, seal, end
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from penstock.errors import (
    FencedError,
    JournalError,
    PenstockError,
    ReceiverError,
    UnsharedPathError,
)
from penstock.journal import CommitPolicy, JournalStream, JournalWriter
from penstock.rate import RateLimiter
from penstock.receivers.control import Order, Status, read_order, write_status
from penstock.receivers.receiver import Position, Receiver, Records

__all__ = ["ReceiverSettings", "ReceiverSupervisor", "ReceiverTask", "backoff_ms", "run_receiver"]

_log = logging.getLogger(__name__)
_SINGLE_RECORDS = (str, bytes, bytearray, memoryview, dict, tuple)
_TABLES = (pa.RecordBatch, pa.Table)
_MAX_BACKOFF_MS = 30_000
_STABLE_S = 60.0
"""After running this long, a failure counts as the first one again."""


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """How receivers run; see penstock.conf for the settings they come from."""

    commit: CommitPolicy = field(default_factory=CommitPolicy)
    compression: str = "none"
    restart_delay_ms: int = 2000
    poll_ms: int = 200
    """How often orders are read: the delay of a stop or a new limit."""
    sync: bool = True
    """Whether what is received is fsynced before it is acked."""


@dataclass(frozen=True)
class ReceiverTask:
    """All that an executor needs to run a receiver; pickles small."""

    receiver: Receiver
    stream: JournalStream
    name: str
    run: str
    settings: ReceiverSettings


def run_receiver(task: ReceiverTask) -> None:
    """Run a receiver until it is told to stop: what a receiver's Spark task does.

    Raises what ReceiverSupervisor.run raises.
    """
    ReceiverSupervisor(task).run()


def backoff_ms(failures: int, base_ms: int) -> int:
    """Return the delay before start number ``failures`` + 1: base, doubled each time, capped."""
    doublings = min(max(failures - 1, 0), 16)
    return min(base_ms << doublings, max(base_ms, _MAX_BACKOFF_MS))


@dataclass(frozen=True, slots=True)
class _Event:
    kind: Literal["restart", "stop", "writer_failed"]
    message: str = ""
    error: BaseException | None = None
    delay_ms: int | None = None


class ReceiverSupervisor:
    """Hosts one receiver; implements ReceiverHost for it."""

    def __init__(self, task: ReceiverTask, parent: Callable[[], int] = os.getppid) -> None:
        self._task = task
        self._parent = parent
        self._parent_pid = parent()
        self._events: queue.Queue[_Event] = queue.Queue()
        self._writer: JournalWriter
        self._limiter = RateLimiter(None, task.settings.commit.block_interval_ms)
        self._stopped = threading.Event()  # set while the receiver shall not receive
        self._stopped.set()
        self._started = False
        self._started_s = 0.0
        self._failures = 0
        self._errors = 0
        self._last_error: str | None = None

    def run(self) -> None:
        """Run the receiver until an order or the receiver itself says stop.

        Raises:
            UnsharedPathError: this process does not see the driver's files.
            FencedError: another attempt took over.
            ReceiverError: the process that this one works for is gone.
        """
        self._limit(self._first_order())
        self._writer = self._open_writer()
        self._task.receiver.attach(self)
        try:
            self._start()
            while (event := self._next_event()).kind != "stop":
                self._recover(event)
            self._halt()
            self._writer.close()
            self._say("stopped")
        finally:
            self._halt()
            self._writer.abandon()

    # -- what the receiver calls, from its threads (ReceiverHost) --

    def store(self, records: Records, position: Position, ack: Callable[[], None] | None) -> None:
        """See Receiver.store."""
        writer = self._writer
        if isinstance(records, pa.RecordBatch | pa.Table) and position is None:
            for part, is_last in self._parts(records):
                self._charge(part.num_rows)
                writer.append_all(part, ack=ack if is_last else None)
            return
        taken, count = _counted(records)
        self._charge(count)
        _append(writer, taken, position, ack)

    def try_store(
        self, records: Records, position: Position, ack: Callable[[], None] | None
    ) -> int:
        """See Receiver.tryStore."""
        taken, count = _counted(records)
        wait_ms = 0 if self._stopped.is_set() else self._limiter.try_acquire(count)
        if wait_ms == 0:
            _append(self._writer, taken, position, ack)
        return wait_ms

    def report_error(self, message: str, error: BaseException | None) -> None:
        """See Receiver.reportError."""
        self._errors += 1
        self._last_error = message if error is None else f"{message}: {error}"
        _log.warning("Receiver %s of stream %s: %s", *self._names(), self._last_error)
        self._say("restarting" if self.is_stopped() else "started")

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        """See Receiver.restart."""
        self._stopped.set()
        self._events.put(_Event("restart", message, error, delay_ms))

    def stop(self, message: str, error: BaseException | None) -> None:
        """See Receiver.stop."""
        self._stopped.set()
        self._events.put(_Event("stop", message, error))

    def is_stopped(self) -> bool:
        """See Receiver.isStopped."""
        return self._stopped.is_set()

    def last_position(self) -> Position:
        """See Receiver.lastPosition."""
        return self._writer.position

    def _charge(self, count: int) -> None:
        """Wait until the limit lets records through, or the receiver is stopped.

        Then they go through all the same: a source without positions or acks could not send them
        again.
        """
        self._limiter.acquire(count, self._stopped)

    def _parts(
        self, records: pa.RecordBatch | pa.Table
    ) -> Iterator[tuple[pa.RecordBatch | pa.Table, bool]]:
        """Yield records in parts that fit a block interval, and whether each is the last."""
        start, total = 0, records.num_rows
        while True:
            burst = None if self._stopped.is_set() else self._limiter.burst()
            end = total if burst is None else min(start + burst, total)
            yield records.slice(start, end - start), end == total
            if end == total:
                return
            start = end

    # -- the supervisor's own thread --

    def _next_event(self) -> _Event:
        poll_s = self._task.settings.poll_ms / 1000
        while (event := self._poll(poll_s)) is None:
            pass
        return event

    def _poll(self, timeout_s: float) -> _Event | None:
        """Wait a little for an event; an order to stop, and a parent that is gone, count as one."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            pass
        if self._parent() != self._parent_pid:
            raise ReceiverError(
                "the executor that this receiver belongs to is gone",
                operation="run receiver",
                ids=self._ids(),
                hint="nothing to do: the driver starts the receiver on another executor",
            )
        order = read_order(self._task.stream, self._task.name)
        if order is None or order.stop or order.run != self._task.run:
            return _Event("stop", "ordered by the driver")
        self._limit(order)
        return None

    def _limit(self, order: Order) -> None:
        if order.rate != self._limiter.rate:
            self._limiter.set_rate(order.rate)
        self._limiter.set_paused(order.paused)

    def _start(self) -> None:
        self._started = True
        self._stopped.clear()
        self._started_s = time.monotonic()
        self._say("started")
        try:
            self._task.receiver.onStart()
        except Exception as e:
            self.restart("onStart failed", e, None)

    def _halt(self) -> None:
        """End receiving: one onStop for each onStart, whatever it raises."""
        self._stopped.set()
        if not self._started:
            return
        self._started = False
        try:
            self._task.receiver.onStop()
        except Exception:
            _log.exception("onStop of receiver %s of stream %s failed", *self._names())

    def _recover(self, event: _Event) -> None:
        """Bring the receiver back after a restart request or a writer's end."""
        if time.monotonic() - self._started_s > _STABLE_S:
            self._failures = 0
        self._failures += 1
        self._halt()
        self.report_error(event.message, event.error)
        delay_ms = event.delay_ms
        if delay_ms is None:
            delay_ms = backoff_ms(self._failures, self._task.settings.restart_delay_ms)
        if isinstance(self._writer.error, FencedError):
            raise self._writer.error
        self._flush()
        if self._wait(delay_ms) and self._renew_writer():
            self._start()

    def _flush(self) -> None:
        # After this the writer's position tells all that was stored, so the restart misses nothing.
        try:
            self._writer.flush()
        except JournalError:
            _log.warning("Receiver %s of stream %s restarts with a new writer", *self._names())

    def _wait(self, delay_ms: int) -> bool:
        """Wait before a start; return False when a stop goes before it."""
        poll_s = self._task.settings.poll_ms / 1000
        deadline_s = time.monotonic() + delay_ms / 1000
        while (left_s := deadline_s - time.monotonic()) > 0:
            event = self._poll(min(left_s, poll_s))
            if event is not None and event.kind == "stop":
                self._events.put(event)
                return False
        return True

    def _renew_writer(self) -> bool:
        """Replace a broken writer; return False when that failed and was put off."""
        if self._writer.error is None:
            return True
        self._writer.abandon()
        try:
            self._writer = self._open_writer()
        except PenstockError as e:
            # Still no room, say: the broken writer stays in place until the next attempt.
            self._events.put(_Event("restart", "the journal cannot be written", e))
            return False
        return True

    def _open_writer(self) -> JournalWriter:
        settings, stream = self._task.settings, self._task.stream
        return JournalWriter(
            stream if settings.sync else stream.without_sync(),
            self._task.name,
            policy=settings.commit,
            compression=settings.compression,
            on_failure=lambda error: self._events.put(
                _Event("writer_failed", error.message, error)
            ),
        )

    def _first_order(self) -> Order:
        order = read_order(self._task.stream, self._task.name)
        if order is None or order.run != self._task.run:
            raise UnsharedPathError(
                "the receiver does not see the driver's order for it",
                operation="start receiver",
                path=self._task.stream.storage.url,
                ids=self._ids(),
                hint="give checkpoint() a path that driver and executors share",
            )
        return order

    def _say(self, state: Literal["started", "restarting", "stopped"]) -> None:
        status = Status(
            run=self._task.run,
            writer=str(self._writer.id),
            state=state,
            host=socket.gethostname(),
            pid=os.getpid(),
            changed_ms=time.time_ns() // 1_000_000,
            errors=self._errors,
            last_error=self._last_error,
        )
        try:
            write_status(self._task.stream, self._task.name, status)
        except Exception:
            _log.exception("Receiver %s of stream %s could not say its status", *self._names())

    def _names(self) -> tuple[str, str]:
        return self._task.name, self._task.stream.name

    def _ids(self) -> dict[str, str]:
        return {"stream": self._task.stream.name, "receiver": self._task.name}


def _counted(records: Records) -> tuple[Records, int]:
    """Return records, and how many they are; what can be iterated once only is read for it."""
    if isinstance(records, _TABLES):
        return records, records.num_rows
    if _is_single(records):
        return records, 1
    several = records if isinstance(records, Sized) else list(records)
    return several, len(several)


def _append(
    writer: JournalWriter, records: Records, position: Position, ack: Callable[[], None] | None
) -> None:
    if _is_single(records):
        writer.append(records, position=position, ack=ack)
        return
    writer.append_all(records, position=position, ack=ack)
    if ack is None and not isinstance(records, _TABLES):
        writer.flush()


def _is_single(records: Records) -> bool:
    if isinstance(records, _TABLES):
        return False
    return isinstance(records, _SINGLE_RECORDS) or not isinstance(records, Iterable)
