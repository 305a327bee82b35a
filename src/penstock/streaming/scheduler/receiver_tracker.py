"""The ReceiverTracker: keeps each receiver of the program running as a long Spark task.

It talks to receivers by files only (penstock.receivers.control). A receiver whose task ended
without an order is started again with back-off, on whatever executor Spark picks.

Source: ``org.apache.spark.streaming.scheduler.ReceiverTracker``.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark import SparkContext

from penstock.errors import ConfigError, ReceiverError, StorageError, UnsharedPathError
from penstock.rate import ReceiveLimit
from penstock.receivers import (
    Order,
    ReceiverSettings,
    ReceiverTask,
    backoff_ms,
    run_receiver,
    write_order,
)
from penstock.streaming.listener import ListenerBus
from penstock.streaming.receiver_input import ReceiverInputDStream
from penstock.streaming.scheduler.receiver_events import ReceiverWatch

__all__ = ["ReceiverTracker", "check_slots", "task_slots"]

_log = logging.getLogger(__name__)


class ReceiverTracker:
    """Starts, restarts and stops the receivers of one program."""

    def __init__(
        self,
        sc: SparkContext,
        inputs: Sequence[ReceiverInputDStream],
        settings: ReceiverSettings,
        bus: ListenerBus,
        on_error: Callable[[BaseException], None],
        limit_of: Callable[[str], ReceiveLimit],
    ) -> None:
        check_slots(
            len(inputs),
            task_slots(str(sc.master), dict(sc.getConf().getAll()), os.cpu_count() or 1),
        )
        run = uuid.uuid4().hex
        self._watch = ReceiverWatch(bus, settings.poll_ms)
        self._runners = {
            i.name: _Runner(sc, i, run, settings, self._watch, on_error, limit_of(i.name))
            for i in inputs
        }

    def start(self) -> None:
        """Start all receivers; returns before they receive."""
        if self._runners:
            self._watch.start()
        for runner in self._runners.values():
            runner.start()

    def limit(self, stream: str, limit: ReceiveLimit) -> None:
        """Hold a stream's receiver to a limit, if it has one; small changes are not sent.

        Raises:
            StorageError: it could not be written; the limit before stays in force.
        """
        if stream in self._runners:
            self._runners[stream].limit(limit)

    def stop(self, timeout_s: float) -> None:
        """Have all receivers publish what they hold, seal and end.

        Raises:
            ReceiverError: one did not end in time; its task was cancelled. What it had not acked is
                for its source to send again.
        """
        for runner in self._runners.values():
            runner.order_stop()
        late = [runner.name for runner in self._runners.values() if not runner.join(timeout_s)]
        self._watch.stop()
        if late:
            raise ReceiverError(
                f"receivers of {', '.join(late)} did not stop within {timeout_s:g} s",
                operation="stop receivers",
                hint="their onStop hangs or their executor is gone; nothing acked is lost",
            )


class _Runner(threading.Thread):
    """One receiver's thread in the driver: waits for its task, and submits it again."""

    def __init__(
        self,
        sc: SparkContext,
        stream: ReceiverInputDStream,
        run: str,
        settings: ReceiverSettings,
        watch: ReceiverWatch,
        on_error: Callable[[BaseException], None],
        limit: ReceiveLimit,
    ) -> None:
        super().__init__(name=f"penstock-receiver-{stream.name}", daemon=True)
        self._sc = sc
        self._task = ReceiverTask(stream.receivers["r0"], stream.journal, "r0", run, settings)
        self._watch = watch
        watch.watch(stream.id, self._task)
        self._on_error = on_error
        self._stopping = threading.Event()
        self._group = f"penstock-receiver-{stream.name}-{run}"
        self._limit = limit
        write_order(
            stream.journal, self._task.name, Order(run, rate=limit.rate, paused=limit.paused)
        )

    def run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                self._run_task()
            except Exception as e:
                if self._stopping.is_set():
                    return
                failures += 1
                self._note(e)
                delay_ms = backoff_ms(failures, self._task.settings.restart_delay_ms)
                self._stopping.wait(delay_ms / 1000)
            else:
                return  # it stopped by itself, or was told to

    def limit(self, limit: ReceiveLimit) -> None:
        """Order a limit; called by the thread that ends before ``order_stop``."""
        if limit.differs_noticeably(self._limit) and not self._stopping.is_set():
            order = Order(self._task.run, rate=limit.rate, paused=limit.paused)
            write_order(self._task.stream, self._task.name, order)
            self._limit = limit

    def order_stop(self) -> None:
        self._stopping.set()
        try:
            write_order(self._task.stream, self._task.name, Order(self._task.run, stop=True))
        except StorageError as e:
            # On a full disk, say. What it holds is not acked, so its source sends it again.
            _log.warning("Receiver of stream %s is ended by force: %s", self._task.stream.name, e)
            self._sc.cancelJobGroup(self._group)

    def join(self, timeout_s: float | None = None) -> bool:  # type: ignore[override]
        """Wait for the receiver's end; cancel its task when it takes too long."""
        if self.ident is None:  # the program failed before it came to start its receivers
            return True
        super().join(timeout_s)
        if not self.is_alive():
            return True
        self._sc.cancelJobGroup(self._group)
        super().join(timeout_s)
        return False

    def _run_task(self) -> None:
        description = f"receiver of stream {self._task.stream.name}"
        self._sc.setJobGroup(self._group, description, interruptOnCancel=True)
        self._sc.parallelize([self._task], 1).foreach(run_receiver)

    def _note(self, error: Exception) -> None:
        reason = _python_error(str(error))
        _log.error("Receiver of stream %s ended: %s", self._task.stream.name, reason)
        self._watch.task_failed(self._task.stream.name, reason, time.time_ns() // 1_000_000)
        if UnsharedPathError.__name__ in reason:
            self._on_error(
                UnsharedPathError(
                    "executors do not see the driver's files",
                    operation="start receiver",
                    path=self._task.stream.storage.url,
                    ids={"stream": self._task.stream.name},
                    hint="give checkpoint() a path that driver and executors share",
                )
            )


def task_slots(master: str, conf: Mapping[str, str], cores: int) -> int | None:
    """Return how many tasks can run at once under a master, None when only the cluster knows.

    ``cores`` are those of this machine, which ``local[*]`` takes.
    """
    if master == "local":
        return 1
    if re.fullmatch(r"local\[\*(?:,\s*\d+)?\]", master):
        return cores
    if match := re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", master):
        return int(match[1])
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", master):
        return int(match[1]) * int(match[2])
    dynamic = conf.get("spark.dynamicAllocation.enabled") == "true"
    if "spark.executor.instances" in conf and not dynamic:
        return int(conf["spark.executor.instances"]) * int(conf.get("spark.executor.cores", "1"))
    return None


def check_slots(receivers: int, slots: int | None) -> None:
    """Check that receivers leave a task slot for the batches.

    Raises:
        ConfigError: they would take all of them, and no batch could ever run.
    """
    if slots is not None and receivers >= max(slots, 1) and receivers > 0:
        raise ConfigError(
            f"{receivers} receiver(s) would take all {slots} task slot(s): no batch could run",
            operation="start receivers",
            ids={"receivers": receivers, "slots": slots},
            hint=f"give Spark more cores, e.g. master local[{receivers + 1}] or local[*]",
        )


def _python_error(text: str) -> str:
    """Return the last Python exception line of a Spark error, which names what really happened."""
    lines: Iterable[str] = (line.strip() for line in text.splitlines())
    named = [line for line in lines if re.match(r"(penstock\.)?[\w.]*(Error|Exception)\b.*:", line)]
    python = [line for line in named if not line.startswith(("org.", "java.", "py4j."))]
    return (python or named or [text.strip()])[-1]
