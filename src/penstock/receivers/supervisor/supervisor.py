"""The supervisor: runs one receiver in this process, in front of a journal writer.

It lives as long as the receiver: inside a long Spark task on an executor, or in a separate process.
One thread, the one that called ``run``, takes all decisions; receivers only leave events for it::

    open writer (seals all earlier epochs) -> onStart -> running
        restart asked, onStart failed   ->  onStop, flush, back-off, onStart
        writer broken                   ->  onStop, new writer, back-off, onStart
                                            (onPause and onResume, if the receiver stays open)
        onStart hangs, writer fenced,
        parent gone                     ->  onStop, end, nothing more is published
        stop commanded by its run, or
        asked for by the receiver, or
        superseded by a later run       ->  onStop, publish what is buffered, seal, end
        journal full, and not to wait   ->  the same, and end with the error
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import time
from collections.abc import Callable

from penstock.errors import FencedError, JournalFullError, PenstockError
from penstock.journal.layout import receiver_folder
from penstock.receivers.backoff import backoff_ms
from penstock.receivers.control import State
from penstock.receivers.own_files import OwnFiles, StoredFiles
from penstock.receivers.receiver import Position, ReceiverIdentity, Records
from penstock.receivers.supervisor.events import End, Event
from penstock.receivers.supervisor.hosted import FailedCallError, HostedReceiver
from penstock.receivers.supervisor.intake import Intake
from penstock.receivers.supervisor.renewable_writer import RenewableWriter
from penstock.receivers.supervisor.status import StatusReport
from penstock.receivers.supervisor.thread_errors import uncaught_errors_to
from penstock.receivers.supervisor.watch import Watch
from penstock.receivers.task import ReceiverTask

_log = logging.getLogger(__name__)
_STABLE_S = 60.0
"""After running this long, a failure counts as the first one again."""


def run_receiver(task: ReceiverTask) -> End:
    """Run a receiver until it has to end, and return why: the body of a receiver's Spark task.

    Raises what ReceiverSupervisor.run raises.
    """
    supervisor = ReceiverSupervisor(task, parent_pid=_daemon_pid())
    with uncaught_errors_to(supervisor.thread_failed):
        return supervisor.run()


class ReceiverSupervisor:
    """Hosts one receiver; implements ReceiverHost for it.

    Args:
        task: the receiver to run.
        parent: returns the parent process; when it is another one than ``parent_pid``, no process
            waits for the receiver any more, and it ends.
        parent_pid: None: the parent that it has now.
    """

    def __init__(
        self,
        task: ReceiverTask,
        parent: Callable[[], int] = os.getppid,
        parent_pid: int | None = None,
    ) -> None:
        self._task = task
        # Not a SimpleQueue: before Python 3.13 its get(timeout) may wait for ever.
        self._events: queue.Queue[Event] = queue.Queue()
        self._journal = RenewableWriter(task, self._on_writer_failure)
        self._hosted = HostedReceiver(task, self._journal.refresh)
        self._intake = Intake(task.settings.commit.block_interval_ms, task.settings.poll_ms)
        self._status = StatusReport(task)
        pid = parent() if parent_pid is None else parent_pid
        self._watch = Watch(task, self._status, parent, pid)
        self._started_s = 0.0
        self._failures = 0

    @property
    def counts(self) -> tuple[int, int]:
        """The records that the receiver stored, and those of them that are durable."""
        return self._journal.counts

    def run(self) -> End:
        """Run the receiver until it has to end; return why.

        Raises:
            UnsharedPathError: this process does not see the driver's files.
            StorageError: control files could not be read, at the start or for a minute.
            FencedError: another attempt took over.
            JournalFullError: a bound is reached, and the receiver must not wait.
            ReceiverError: ``onStart`` hangs, or the process that this one works for is gone.
        """
        command = self._watch.first_command()
        if isinstance(command, Event):
            assert command.end is not None
            return command.end
        self._intake.limit(command)
        self._journal.open()
        self._task.receiver.attach(self)
        try:
            self._start()
            while (end := (event := self._next_event()).end) is None:
                self._recover(event)
            self._end(event)
            return end
        except FencedError:
            raise  # the status file is another attempt's by now
        except PenstockError as e:
            self._status.error("ended", e, "stopped")
            raise
        finally:
            self._halt()
            self._journal.abandon()

    # -- what the receiver calls, from its threads (ReceiverHost) --

    def store(self, records: Records, position: Position, ack: Callable[[], None] | None) -> None:
        """See Receiver.store."""
        self._intake.store(self._journal.current, records, position, ack)

    def try_store(
        self, records: Records, position: Position, ack: Callable[[], None] | None
    ) -> int:
        """See Receiver.tryStore."""
        return self._intake.try_store(self._journal.current, records, position, ack)

    def report_error(self, message: str, error: BaseException | None) -> None:
        """See Receiver.reportError."""
        self._status.error(message, error, "restarting" if self.is_stopped() else "started")

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        """See Receiver.restart."""
        self._intake.stopped.set()
        self._events.put(Event("restart", message, error, delay_ms))

    def stop(self, message: str, error: BaseException | None) -> None:
        """See Receiver.stop."""
        self._intake.stopped.set()
        self._events.put(Event("asked", message, error))

    def is_stopped(self) -> bool:
        """See Receiver.isStopped."""
        return self._intake.stopped.is_set()

    def last_position(self) -> Position:
        """See Receiver.lastPosition."""
        return self._journal.current.position

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

    def _next_event(self) -> Event:
        poll_s = self._task.settings.poll_ms / 1000
        while (event := self._poll(poll_s)) is None:
            pass
        return event

    def _poll(self, timeout_s: float) -> Event | None:
        """Wait briefly for an event; without one, poll whether the receiver may continue."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            pass
        command = self._watch.poll()
        if isinstance(command, Event):
            return command
        self._intake.limit(command)
        self._journal.refresh()
        self._status.measured(self._intake.refused, self._journal.publish_ms)
        if self._journal.full is not None:
            return Event("asked", self._journal.full.message, self._journal.full)
        return None

    def _start(self) -> None:
        self._journal.set_blocking()
        self._intake.stopped.clear()
        self._started_s = time.monotonic()
        self._say("started")
        try:
            self._hosted.begin()
        except FailedCallError as e:
            self.restart(str(e), e.__cause__, None)
            return
        receiver = self._task.receiver
        if receiver.listeningAt is not None:
            self._say("started")  # again, as the location is known now
        _log.info(
            "Receiver %s of stream %s receives: %s, writer %s",
            *self._names(),
            receiver.listeningAt or repr(receiver),
            self._journal.current.id,
        )

    def _end(self, event: Event) -> None:
        """Publish what is buffered, and seal."""
        self._halt()
        self._journal.close()
        _log.info("Receiver %s of stream %s stopped: %s", *self._names(), event.message)
        if isinstance(event.error, JournalFullError):
            raise event.error
        if event.error is not None:
            self._status.error(event.message, event.error, "stopped")
        elif event.kind != "superseded":  # then the status file belongs to the other attempt
            self._say("stopped")

    def _halt(self) -> None:
        """End receiving, regardless of errors in the receiver's ``onStop``."""
        self._intake.stopped.set()
        if not self._hosted.has_begun:
            return
        try:
            with self._journal.draining():
                self._hosted.end()
        except FailedCallError as e:
            _log.exception("%s of receiver %s of stream %s", e, *self._names())
            self._status.error(str(e), e.__cause__)

    def _recover(self, event: Event) -> None:
        """Bring the receiver back after a restart request or a writer's end."""
        if time.monotonic() - self._started_s > _STABLE_S:
            self._failures = 0
        self._failures += 1
        self._intake.stopped.set()
        if event.kind != "writer_failed" or not self._hosted.pause(event.error):
            self._halt()
        self.report_error(event.message, event.error)
        delay_ms = event.delay_ms
        if delay_ms is None:
            delay_ms = backoff_ms(self._failures, self._task.settings.restart_delay_ms)
        self._journal.flush()
        if self._wait(delay_ms) and self._renew_writer():
            self._start()

    def _wait(self, delay_ms: int) -> bool:
        """Wait before a start; return False if a stop comes first."""
        poll_s = self._task.settings.poll_ms / 1000
        deadline_s = time.monotonic() + delay_ms / 1000
        while (left_s := deadline_s - time.monotonic()) > 0:
            event = self._poll(min(left_s, poll_s))
            if event is not None and event.end is not None:
                self._events.put(event)
                return False
        return True

    def _renew_writer(self) -> bool:
        """Replace a broken writer; return False if that failed and was postponed."""
        try:
            self._journal.renew()
        except FencedError:
            raise
        except PenstockError as e:  # for example a bound is still reached
            self._on_writer_failure(e)
            return False
        return True

    def _on_writer_failure(self, error: PenstockError) -> None:
        self._events.put(Event("writer_failed", "the journal cannot be written", error))

    def _say(self, state: State) -> None:
        self._status.say(state, str(self._journal.current.id))

    def _names(self) -> tuple[str, str]:
        return self._task.name, self._task.stream.name


def _daemon_pid() -> int | None:
    """Return the process that forked this one, which may be gone; None if it is not known.

    Spark's daemon, the parent of its Python workers, leads their process group.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    is_worker = "pyspark.daemon" in (*sys.modules, main and main.name)
    return os.getpgrp() if is_worker else None
