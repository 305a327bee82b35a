"""What listeners are told of receivers: learned from the status files that receivers write.

Two changes between two polls (200 ms on local files) are told as one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.driver.runner import status_of_run
from penstock.receivers import ReceiverTask, Status
from penstock.streaming.core.events import (
    ReceiverInfo,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
)
from penstock.streaming.core.listener import ListenerBus


class ReceiverProgress:
    """One receiver's state as listeners know it. Plain state: the events are what is returned."""

    def __init__(self, stream_id: int, name: str) -> None:
        self.info = ReceiverInfo(stream_id, name, is_active=False)
        self._errors = 0
        self._seen: Status | None = None
        self._over: Status | None = None
        """The last status of a process whose task has ended; its file remains."""

    def see(self, status: Status) -> list[object]:
        """Record the receiver's status of this run; return what changed, in order."""
        if status == self._over:
            return []
        self._seen = status
        other = status.pid != self.info.process_id or status.host != self.info.host
        if other:
            self._errors = 0
        events: list[object] = []
        if status.errors > self._errors:
            events += self.fail(status.last_error or "", status.changed_ms)
        self._errors = status.errors
        active = status.state == "started"
        if other or not active:
            events += self.end()
        if active and not self.info.is_active:
            self.info = replace(self.info, is_active=True, host=status.host, process_id=status.pid)
            events.append(StreamingListenerReceiverStarted(self.info))
        return events

    def fail(self, error: str, now_ms: int) -> list[object]:
        """Record an error of the receiver."""
        self.info = replace(self.info, last_error=error, last_error_time_ms=now_ms)
        return [StreamingListenerReceiverError(self.info)]

    def task_failed(self, error: str, now_ms: int) -> list[object]:
        """Record that its Spark task, and so its process, ended with an error."""
        self._over = self._seen
        return self.fail(error, now_ms) + self.end()

    def end(self) -> list[object]:
        """Record that it receives no more."""
        if not self.info.is_active:
            return []
        self.info = replace(self.info, is_active=False)
        return [StreamingListenerReceiverStopped(self.info)]


class ReceiverEvents(threading.Thread):
    """Polls the status of all receivers while a listener hears of receivers.

    Args:
        bus: to the listeners.
        poll_ms: how often it polls.
        stream_ids: the index of each stream's input.
    """

    def __init__(self, bus: ListenerBus, poll_ms: int, stream_ids: Mapping[str, int]) -> None:
        super().__init__(name="penstock-receiver-watch", daemon=True)
        self._bus = bus
        self._stream_ids = stream_ids
        self._poll_s = poll_ms / 1000
        self._watched: dict[tuple[str, str], tuple[ReceiverTask, ReceiverProgress]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def begin(self, tasks: Sequence[ReceiverTask]) -> None:
        """Poll the status of these receivers, if there are any.

        One that is the only one of its stream is named as in Spark.
        """
        counts = Counter(task.stream.name for task in tasks)
        for task in tasks:
            stream_id = self._stream_ids[task.stream.name]
            name = f"{type(task.receiver).__name__}-{stream_id}"
            named = name if counts[task.stream.name] == 1 else f"{name}-{task.name}"
            self._watched[_key(task)] = task, ReceiverProgress(stream_id, named)
        if tasks:
            self.start()

    def run(self) -> None:
        """Poll until ``end``."""
        while not self._stopped.wait(self._poll_s):
            self._poll()

    def end(self) -> None:
        """Poll once more, and report that all receivers ended."""
        self._stopped.set()
        if self.ident is not None and self is not threading.current_thread():
            self.join()
        self._poll()
        with self._lock:
            for _, progress in self._watched.values():
                self._put(progress.end())
        self._bus.deliver()

    def task_failed(self, task: ReceiverTask, error: str, now_ms: int) -> None:
        """Record that a receiver's Spark task ended with an error."""
        self._poll()
        progress = self._watched[_key(task)][1]
        with self._lock:
            self._put(progress.task_failed(error, now_ms))
        self._bus.deliver()

    def _poll(self) -> None:
        if not self._bus.hears_receivers:
            return
        with self._lock:
            for task, progress in self._watched.values():
                if (status := status_of_run(task)) is not None:
                    self._put(progress.see(status))
        self._bus.deliver()

    def _put(self, events: Sequence[object]) -> None:
        for event in events:
            self._bus.put(event)


def _key(task: ReceiverTask) -> tuple[str, str]:
    return task.stream.name, task.name
