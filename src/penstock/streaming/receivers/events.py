"""What listeners are told of receivers: learned from the status files that receivers write.

Two changes between two polls (200 ms on local files) are told as one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import PenstockError
from penstock.receivers import ReceiverTask, Status, read_status
from penstock.streaming.core.events import (
    ReceiverInfo,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
)
from penstock.streaming.core.listener import ListenerBus

__all__ = ["ReceiverProgress", "ReceiverWatch"]

_log = logging.getLogger(__name__)


class ReceiverProgress:
    """One receiver's state as listeners know it. Plain state: the events are what is returned."""

    def __init__(self, stream_id: int, name: str) -> None:
        self.info = ReceiverInfo(stream_id, name, is_active=False)
        self._errors = 0
        self._seen: Status | None = None
        self._over: Status | None = None
        """What a process last said whose task has ended: it stays in the file."""

    def see(self, status: Status) -> list[object]:
        """Take the receiver's status of this run; return what changed, in order."""
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
        """Take an error of the receiver."""
        self.info = replace(self.info, last_error=error, last_error_time_ms=now_ms)
        return [StreamingListenerReceiverError(self.info)]

    def task_failed(self, error: str, now_ms: int) -> list[object]:
        """Take that its Spark task, and so its process, ended with an error."""
        self._over = self._seen
        return self.fail(error, now_ms) + self.end()

    def end(self) -> list[object]:
        """Take that it receives no more."""
        if not self.info.is_active:
            return []
        self.info = replace(self.info, is_active=False)
        return [StreamingListenerReceiverStopped(self.info)]


class ReceiverWatch(threading.Thread):
    """Polls the status of all receivers while a listener is registered."""

    def __init__(self, bus: ListenerBus, poll_ms: int) -> None:
        super().__init__(name="penstock-receiver-watch", daemon=True)
        self._bus = bus
        self._poll_s = poll_ms / 1000
        self._watched: dict[tuple[str, str], tuple[ReceiverTask, ReceiverProgress]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def watch(self, stream_id: int, task: ReceiverTask, *, alone: bool) -> None:
        """Add a receiver; to be called before the start.

        ``alone``: it is the only one of its stream, and is then named as in Spark.
        """
        name = f"{type(task.receiver).__name__}-{stream_id}"
        named = name if alone else f"{name}-{task.name}"
        self._watched[_key(task)] = task, ReceiverProgress(stream_id, named)

    def run(self) -> None:
        """Poll until ``stop``."""
        while not self._stopped.wait(self._poll_s):
            self._poll()

    def stop(self) -> None:
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
        if not self._bus.has_listeners:
            return
        with self._lock:
            for task, progress in self._watched.values():
                if (status := _status(task)) is not None:
                    self._put(progress.see(status))
        self._bus.deliver()

    def _put(self, events: Sequence[object]) -> None:
        for event in events:
            self._bus.put(event)


def _key(task: ReceiverTask) -> tuple[str, str]:
    return task.stream.name, task.name


def _status(task: ReceiverTask) -> Status | None:
    """Return the status of this run's receiver, None when it has said none."""
    try:
        status = read_status(task.stream, task.name)
    except PenstockError as e:
        _log.warning("The status of receiver %s/%s cannot be read: %s", *_key(task), e)
        return None
    return status if status is not None and status.run == task.run else None
