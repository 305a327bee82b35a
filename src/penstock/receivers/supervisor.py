"""The supervisor: runs one receiver in this process, in front of a journal writer.

It lives as long as the receiver shall: inside a long Spark task on an executor, or in a process of
its own. All decisions are taken by one thread, the one that called ``run``; receivers only leave
events for it::

    open writer (seals all earlier epochs) -> onStart -> running
        restart asked, onStart failed   ->  onStop, flush, back-off, onStart
        writer broken                   ->  onStop, new writer, back-off, onStart
                                            (onPause and onResume, if the receiver stays open)
        onStart hangs, writer fenced,
        parent gone                     ->  onStop, end, nothing more is published
        stop asked, by order or by the receiver, or
        superseded by another run       ->  onStop, publish what is buffered, seal, end
        journal full, and not to wait   ->  the same, and end with the error
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.errors import (
    FencedError,
    JournalError,
    JournalFullError,
    PenstockError,
    ReceiverError,
    UnsharedPathError,
)
from penstock.journal import JournalWriter
from penstock.journal.layout import receiver_folder
from penstock.receivers.backoff import backoff_ms
from penstock.receivers.control import Order, State, read_order
from penstock.receivers.foreign import HungError, call_within, uncaught_errors_to
from penstock.receivers.intake import Intake
from penstock.receivers.own_files import OwnFiles, StoredFiles
from penstock.receivers.receiver import Position, ReceiverIdentity, Records
from penstock.receivers.room import WriterRoom
from penstock.receivers.status import StatusReport
from penstock.receivers.task import ReceiverTask

__all__ = ["ReceiverSupervisor", "run_receiver"]

_log = logging.getLogger(__name__)
_ENDS = ("stop", "superseded")
_STABLE_S = 60.0
"""After running this long, a failure counts as the first one again."""
_BLOCKED_STORE_S = 2.0
"""How long a store may still wait for room in the journal once the receiver is to stop."""


def run_receiver(task: ReceiverTask) -> None:
    """Run a receiver until it is told to stop: what a receiver's Spark task does.

    Raises what ReceiverSupervisor.run raises.
    """
    supervisor = ReceiverSupervisor(task)
    with uncaught_errors_to(supervisor.thread_failed):
        supervisor.run()


@dataclass(frozen=True, slots=True)
class _Event:
    kind: Literal["restart", "stop", "superseded", "writer_failed"]
    message: str = ""
    error: BaseException | None = None
    delay_ms: int | None = None


class ReceiverSupervisor:
    """Hosts one receiver; implements ReceiverHost for it.

    Args:
        task: what to run.
        parent: tells the process that this one works for; when it changes, nobody waits for the
            receiver any more, and it ends.
    """

    def __init__(self, task: ReceiverTask, parent: Callable[[], int] = os.getppid) -> None:
        self._task = task
        self._parent = parent
        self._parent_pid = parent()
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._writer: JournalWriter
        self._room: WriterRoom
        self._intake = Intake(task.settings.commit.block_interval_ms, task.settings.poll_ms)
        self._status = StatusReport(task)
        self._started = False
        self._paused = False  # by onPause: started, and open while the journal cannot be written
        self._started_s = 0.0
        self._failures = 0

    def run(self) -> None:
        """Run the receiver until an order or the receiver itself says stop.

        Raises:
            UnsharedPathError: this process does not see the driver's files.
            FencedError: another attempt took over.
            JournalFullError: there is no room within the bounds, and the receiver is not to wait.
            ReceiverError: ``onStart`` hangs, or the process that this one works for is gone.
        """
        self._intake.limit(self._first_order())
        self._open_writer()
        self._task.receiver.attach(self)
        try:
            self._start()
            while (event := self._next_event()).kind not in _ENDS:
                self._recover(event)
            self._end(event)
        except FencedError:
            raise  # the status file is another attempt's by now
        except PenstockError as e:
            self._status.error("ended", e, "stopped")
            raise
        finally:
            self._halt()
            self._writer.abandon()

    # -- what the receiver calls, from its threads (ReceiverHost) --

    def store(self, records: Records, position: Position, ack: Callable[[], None] | None) -> None:
        """See Receiver.store."""
        self._intake.store(self._writer, records, position, ack)

    def try_store(
        self, records: Records, position: Position, ack: Callable[[], None] | None
    ) -> int:
        """See Receiver.tryStore."""
        return self._intake.try_store(self._writer, records, position, ack)

    def report_error(self, message: str, error: BaseException | None) -> None:
        """See Receiver.reportError."""
        self._status.error(message, error, "restarting" if self.is_stopped() else "started")

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        """See Receiver.restart."""
        self._intake.stopped.set()
        self._events.put(_Event("restart", message, error, delay_ms))

    def stop(self, message: str, error: BaseException | None) -> None:
        """See Receiver.stop."""
        self._intake.stopped.set()
        self._events.put(_Event("stop", message, error))

    def is_stopped(self) -> bool:
        """See Receiver.isStopped."""
        return self._intake.stopped.is_set()

    def last_position(self) -> Position:
        """See Receiver.lastPosition."""
        return self._writer.position

    def own_files(self) -> OwnFiles:
        """See Receiver.ownFiles."""
        stream = self._task.stream
        return StoredFiles(stream.storage, receiver_folder(stream.name, self._task.name))

    def identity(self) -> ReceiverIdentity:
        """See Receiver.identity."""
        return ReceiverIdentity(self._task.stream.name, self._task.name)

    def thread_failed(self, message: str, error: BaseException | None) -> None:
        """Restart the receiver because one of its threads ended with an exception."""
        if not self.is_stopped():
            self.restart(message, error, None)

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
        if order is None:
            raise ReceiverError(
                "the order that this receiver runs by is gone",
                operation="run receiver",
                path=self._task.stream.storage.uri(f"{self._task.stream.name}/control"),
                ids=self._ids(),
                hint="leave the folder alone; who starts the receiver again writes the order anew",
            )
        if order.stop:
            return _Event("stop", "ordered")
        if order.run != self._task.run:
            return _Event("superseded", "another process runs this receiver")
        if self._status.look():
            raise FencedError(
                "a later attempt of this receiver runs",
                operation="run receiver",
                ids=self._ids(),
                hint="nothing to do: it sealed this one's writer, which can publish nothing more",
            )
        self._intake.limit(order)
        self._room.look()
        if self._room.failure is not None:
            return _Event("stop", self._room.failure.message, self._room.failure)
        return None

    def _start(self) -> None:
        settings = self._task.settings
        self._started = True
        self._writer.let_wait(True)
        self._intake.stopped.clear()
        self._started_s = time.monotonic()
        self._say("started")
        receiver = self._task.receiver
        begin, self._paused = (receiver.onResume if self._paused else receiver.onStart), False
        try:
            call_within(begin, settings.start_timeout_ms, settings.poll_ms, self._room.look)
        except HungError as e:
            raise ReceiverError(
                f"{begin.__name__} hangs",
                operation="start receiver",
                ids=self._ids(),
                hint="let onStart start threads and return; this process ends, and the receiver is "
                "started anew in another",
            ) from e
        except Exception as e:
            self.restart(f"{begin.__name__} failed", e, None)
        else:
            if receiver.listeningAt is not None:
                self._say("started")  # again, as now it is known where
            _log.info(
                "Receiver %s of stream %s receives: %s, writer %s",
                *self._names(),
                receiver.listeningAt or repr(receiver),
                self._writer.id,
            )

    def _end(self, event: _Event) -> None:
        """Publish what is buffered, and seal."""
        self._halt()
        self._writer.close()
        self._room.leave()
        _log.info("Receiver %s of stream %s stopped: %s", *self._names(), event.message)
        if isinstance(event.error, JournalFullError):
            raise event.error
        if event.error is not None:
            self._status.error(event.message, event.error, "stopped")
        elif event.kind != "superseded":  # then the status file is the other's
            self._say("stopped")

    def _pause(self, error: BaseException | None) -> bool:
        """Keep a receiver open while the journal cannot be written; return whether it stays so."""
        self._intake.stopped.set()
        if self._started and not self._paused and isinstance(error, PenstockError):
            try:
                self._paused = self._task.receiver.onPause(error)
            except Exception:
                _log.exception("onPause of receiver %s of stream %s failed", *self._names())
        return self._paused

    def _halt(self) -> None:
        """End receiving: one onStop for each onStart, whatever it raises."""
        self._intake.stopped.set()
        if not self._started:
            return
        self._started = self._paused = False
        settings = self._task.settings
        # A store that waits for room would have its thread, and so onStop, wait as well.
        patience = threading.Timer(_BLOCKED_STORE_S, self._writer.let_wait, (False,))
        patience.daemon = True
        patience.start()
        try:
            call_within(
                self._task.receiver.onStop,
                settings.stop_timeout_ms,
                settings.poll_ms,
                self._room.look,
            )
        except Exception as e:
            _log.exception("onStop of receiver %s of stream %s failed", *self._names())
            self._status.error("onStop failed", e)
        finally:
            patience.cancel()
            self._writer.let_wait(False)

    def _recover(self, event: _Event) -> None:
        """Bring the receiver back after a restart request or a writer's end."""
        if time.monotonic() - self._started_s > _STABLE_S:
            self._failures = 0
        self._failures += 1
        if event.kind != "writer_failed" or not self._pause(event.error):
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
            if event is not None and event.kind in _ENDS:
                self._events.put(event)
                return False
        return True

    def _renew_writer(self) -> bool:
        """Replace a broken writer; return False when that failed and was put off."""
        if self._writer.error is None:
            return True
        self._writer.abandon()
        try:
            self._open_writer()
        except PenstockError as e:
            # Still no room, say: the broken writer stays in place until the next attempt.
            self._events.put(_Event("writer_failed", "the journal cannot be written", e))
            return False
        return True

    def _open_writer(self) -> None:
        settings, stream = self._task.settings, self._task.stream
        writer = JournalWriter(
            stream if settings.sync else stream.without_sync(),
            self._task.name,
            policy=settings.commit,
            compression=settings.compression,
            bounds=settings.bounds,
            on_failure=lambda error: self._events.put(
                _Event("writer_failed", error.message, error)
            ),
        )
        self._writer, self._room = writer, WriterRoom(writer, settings)
        self._room.look()

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

    def _say(self, state: State) -> None:
        self._status.say(state, str(self._writer.id))

    def _names(self) -> tuple[str, str]:
        return self._task.name, self._task.stream.name

    def _ids(self) -> dict[str, str]:
        return {"stream": self._task.stream.name, "receiver": self._task.name}
