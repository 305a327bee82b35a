"""One receiver as the driver keeps it: a long Spark task that is submitted again when it ends."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark import SparkContext

from penstock.errors import StorageError, UnsharedPathError
from penstock.journal import JournalStream
from penstock.rate import ReceiveLimit
from penstock.receivers import (
    Order,
    Receiver,
    ReceiverSettings,
    ReceiverTask,
    backoff_ms,
    run_receiver,
    write_order,
)
from penstock.streaming.scheduler.receiver_events import ReceiverWatch
from penstock.streaming.scheduler.receiver_placement import ReceiverPlacement, placed_rdd

__all__ = ["ReceiverRun", "ReceiverRunner"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReceiverRun:
    """What the receivers of one run of a program have in common."""

    id: str
    sc: SparkContext
    settings: ReceiverSettings
    placement: ReceiverPlacement
    watch: ReceiverWatch
    on_error: Callable[[BaseException], None]


class ReceiverRunner(threading.Thread):
    """One receiver's thread in the driver: waits for its task, and submits it again."""

    def __init__(
        self,
        run: ReceiverRun,
        stream: JournalStream,
        name: str,
        receiver: Receiver,
        limit: ReceiveLimit,
    ) -> None:
        self.id = f"{stream.name}/{name}"
        super().__init__(name=f"penstock-receiver-{self.id}", daemon=True)
        self._run = run
        self.task = ReceiverTask(receiver, stream, name, run.id, run.settings)
        self._stopping = threading.Event()
        self._group = f"penstock-receiver-{self.id}-{run.id}"
        self._ordering = threading.Lock()
        """Held while an order to go on is written, so that none follows the one to stop."""
        self._order(limit)

    def run(self) -> None:
        """Run the receiver's task, again with back-off when it ends by itself."""
        failures = 0
        while not self._stopping.is_set():
            try:
                if failures:  # whoever deleted or damaged the order may be why it ended
                    self._order(self._limit)
                self._run_task()
            except Exception as e:
                if self._stopping.is_set():
                    return
                failures += 1
                self._note(e)
                delay_ms = backoff_ms(failures, self._run.settings.restart_delay_ms)
                self._stopping.wait(delay_ms / 1000)
            else:
                return  # it stopped by itself, or was told to

    def limit(self, limit: ReceiveLimit) -> None:
        """Order a limit; called by the thread that ends before ``order_stop``."""
        if limit.differs_noticeably(self._limit):
            self._order(limit)

    def order_stop(self) -> None:
        """Tell the receiver to publish what it holds, seal and end."""
        with self._ordering:
            self._stopping.set()
        try:
            write_order(self.task.stream, self.task.name, Order(self._run.id, stop=True))
        except StorageError as e:
            # On a full disk, say. What it holds is not acked, so its source sends it again.
            _log.warning("Receiver %s is ended by force: %s", self.id, e)
            self._run.sc.cancelJobGroup(self._group)

    def join(self, timeout_s: float | None = None) -> bool:  # type: ignore[override]
        """Wait for the receiver's end; cancel its task when it takes too long."""
        if self.ident is None:  # the program failed before it came to start its receivers
            return True
        super().join(timeout_s)
        if not self.is_alive():
            return True
        self._run.sc.cancelJobGroup(self._group)
        super().join(timeout_s)
        return False

    def _order(self, limit: ReceiveLimit) -> None:
        order = Order(self._run.id, rate=limit.rate, paused=limit.paused)
        with self._ordering:
            if not self._stopping.is_set():
                write_order(self.task.stream, self.task.name, order)
                self._limit = limit

    def _run_task(self) -> None:
        sc = self._run.sc
        executor = self._run.placement.choose(self.id, self._stopping)
        sc.setJobGroup(self._group, f"receiver {self.id}", interruptOnCancel=True)
        placed_rdd(sc, self.task, executor).foreach(run_receiver)

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
                    hint="give checkpoint() a path that driver and executors share",
                )
            )


def _python_error(text: str) -> str:
    """Return the last Python exception line of a Spark error, which names what really happened."""
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    named = [line for line in lines if re.match(r"(penstock\.)?[\w.]*(Error|Exception)\b.*:", line)]
    python = [line for line in named if not line.startswith(("org.", "java.", "py4j."))]
    return (python or named or [text.strip()])[-1]
