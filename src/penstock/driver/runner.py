"""One receiver as the driver keeps it: a long Spark task that is submitted again when it ends."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark import SparkContext

from penstock.driver.spark import ReceiverPlacement, begin_jobs, cancel_jobs, placed_rdd
from penstock.errors import (
    FencedError,
    PenstockError,
    ReceiverError,
    StorageError,
    UnsharedPathError,
)
from penstock.rate import ReceiveLimit
from penstock.receivers import (
    Command,
    End,
    ReceiverSettings,
    ReceiverTask,
    Status,
    backoff_ms,
    give_command,
    read_status,
    run_receiver,
)

_log = logging.getLogger(__name__)


class ReceiverWatch(Protocol):
    """Is told of the receivers of a run, by several threads."""

    def begin(self, tasks: Sequence[ReceiverTask]) -> None:
        """Take that these receivers will be started."""

    def task_failed(self, task: ReceiverTask, error: str, now_ms: int) -> None:
        """Take that a receiver's Spark task, and so its process, ended with an error."""

    def end(self) -> None:
        """Take that no receiver of the run will be started any more."""


@dataclass(frozen=True)
class ReceiverRun:
    """What the receivers of one run of a driver have in common."""

    id: str
    sc: SparkContext
    settings: ReceiverSettings
    placement: ReceiverPlacement
    watch: ReceiverWatch
    on_error: Callable[[BaseException], None]


class ReceiverRunner(threading.Thread):
    """One receiver's thread in the driver: waits for its task, and submits it again.

    Args:
        run: what it shares with the other receivers.
        task: what to submit, claimed for this run under a command that holds it to ``limit``.
        limit: see ``limit``.
    """

    def __init__(self, run: ReceiverRun, task: ReceiverTask, limit: ReceiveLimit) -> None:
        self.id = f"{task.stream.name}/{task.name}"
        super().__init__(name=f"penstock-receiver-{self.id}", daemon=True)
        self._run = run
        self._limit = limit
        self.task = task
        self._stopping = threading.Event()
        self._group = f"penstock-receiver-{self.id}-{run.id}"
        self._commanding = threading.Lock()
        """Held while a command to receive is written, so that none follows the one to stop."""

    def run(self) -> None:
        """Run the receiver's task, again with back-off when it ends and neither side wanted it."""
        failures = 0
        while not self._stopping.is_set():
            try:
                if failures:  # a command that was deleted, damaged or changed may be why it ended
                    self._give(self._limit)
                end = self._run_task()
                if end == "asked" or self._stopping.is_set():
                    return
                raise _unwanted_end(self.task, end)
            except FencedError as e:
                if not self._stopping.is_set():
                    self._note(e)
                    self._run.on_error(e)
                return
            except Exception as e:
                if self._stopping.is_set() or _is_stopped(self._run.sc):
                    return
                failures += 1
                self._note(e)
                delay_ms = backoff_ms(failures, self._run.settings.restart_delay_ms)
                self._stopping.wait(delay_ms / 1000)

    def limit(self, limit: ReceiveLimit) -> None:
        """Command a limit; called by the thread that ends before ``command_stop``."""
        if limit.differs_noticeably(self._limit):
            self._give(limit)

    def command_stop(self) -> None:
        """Tell the receiver to publish what it holds, seal and end."""
        with self._commanding:
            self._stopping.set()
        task = self.task
        try:
            give_command(task.stream, task.name, task.run, Command(stop=True))
        except FencedError:
            _log.info("Receiver %s is a later run's; this run's ends by itself", self.id)
        except StorageError as e:
            # On a full disk, say. What it holds is not acked, so its source sends it again.
            _log.warning("Receiver %s is ended by force: %s", self.id, e)
            cancel_jobs(self._run.sc, self._group)

    def join(self, timeout_s: float | None = None) -> bool:  # type: ignore[override]
        """Wait for the receiver's end; cancel its task when it takes too long."""
        if self.ident is None:  # the program failed before it came to start its receivers
            return True
        super().join(timeout_s)
        if not self.is_alive():
            return True
        cancel_jobs(self._run.sc, self._group)
        super().join(timeout_s)
        return False

    def _give(self, limit: ReceiveLimit) -> None:
        task = self.task
        with self._commanding:
            if not self._stopping.is_set():
                give_command(task.stream, task.name, task.run, command_of(limit))
                self._limit = limit

    def _run_task(self) -> End:
        sc = self._run.sc
        executor = self._run.placement.choose(self.id, self._stopping)
        begin_jobs(sc, self._group, f"receiver {self.id}")
        (end,) = placed_rdd(sc, self.task, executor).map(run_receiver).collect()
        return end

    def _note(self, error: Exception) -> None:
        reason = _python_error(str(error))
        _log.error("Receiver %s ended: %s", self.id, reason)
        self._run.watch.task_failed(self.task, reason, time.time_ns() // 1_000_000)
        if UnsharedPathError.__name__ in reason:
            self._run.on_error(
                UnsharedPathError(
                    "executors do not see the driver's files",
                    operation="start receiver",
                    path=self.task.stream.storage.url,
                    ids={"stream": self.task.stream.name, "receiver": self.task.name},
                    hint="give checkpoint() or start_receivers() a path that both share",
                )
            )


def status_of_run(task: ReceiverTask) -> Status | None:
    """Return the status of this run's receiver, None when it has said none."""
    try:
        status = read_status(task.stream, task.name)
    except PenstockError as e:
        names = task.stream.name, task.name
        _log.warning("The status of receiver %s/%s cannot be read: %s", *names, e)
        return None
    return status if status is not None and status.run == task.run else None


def command_of(limit: ReceiveLimit) -> Command:
    """Return the command to receive within a limit."""
    return Command(rate=limit.rate, paused=limit.paused)


def _is_stopped(sc: SparkContext) -> bool:
    """Whether the SparkContext runs no tasks any more: the program stopped it first."""
    try:
        return sc._jsc is None or bool(sc._jsc.sc().isStopped())
    except Py4JError:  # its JVM is gone
        return True


def _unwanted_end(task: ReceiverTask, end: End) -> ReceiverError:
    by = "a later run took it over" if end == "superseded" else "its command file says stop"
    return ReceiverError(
        f"it ended without this driver's command: {by}",
        operation="run receiver",
        ids=task.ids,
        hint="nothing to do: the driver starts it again, unless a later run has it",
    )


def _python_error(text: str) -> str:
    """Return the last Python exception line of a Spark error, which names what really happened."""
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    named = [line for line in lines if re.match(r"(penstock\.)?[\w.]*(Error|Exception)\b.*:", line)]
    python = [line for line in named if not line.startswith(("org.", "java.", "py4j."))]
    return (python or named or [text.strip()])[-1]
