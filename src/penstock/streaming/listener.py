"""What a program can learn of its batches while they run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.streaming.batch import InputLimit

__all__ = ["BatchInfo", "ListenerBus", "StreamingListener"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch's progress. Times in milliseconds since the epoch, delays in milliseconds.

    Source: ``org.apache.spark.streaming.scheduler.BatchInfo``.
    """

    batchId: int
    batchTime: int
    numRecords: int
    submissionTime: int
    processingStartTime: int | None = None
    processingEndTime: int | None = None
    failed: bool = False
    limits: Mapping[str, InputLimit] = field(default_factory=dict)
    """How much it was allowed to take of each input, and why, by the inputs' names."""

    @property
    def schedulingDelay(self) -> int | None:
        """How long the batch waited for its first job, None while it waits."""
        start = self.processingStartTime
        return None if start is None else start - self.submissionTime

    @property
    def processingDelay(self) -> int | None:
        """How long its jobs took, None while they run."""
        start, end = self.processingStartTime, self.processingEndTime
        return None if start is None or end is None else end - start

    @property
    def totalDelay(self) -> int | None:
        """From its submission to its end, None while it runs."""
        end = self.processingEndTime
        return None if end is None else end - self.submissionTime


class StreamingListener:
    """Subclass it, and give it to ``StreamingContext.addStreamingListener``.

    Calls come from engine threads and must be quick; what they raise is logged.
    Source: ``org.apache.spark.streaming.scheduler.StreamingListener``.
    """

    def onBatchSubmitted(self, batchSubmitted: BatchInfo) -> None:
        """Called when a batch is planned and its jobs wait."""

    def onBatchStarted(self, batchStarted: BatchInfo) -> None:
        """Called when the first job of a batch starts."""

    def onBatchCompleted(self, batchCompleted: BatchInfo) -> None:
        """Called when all jobs of a batch ended and it is committed, or one of them failed."""

    def onReceiverError(self, stream: str, message: str) -> None:
        """Called when a receiver ended with an error; it is started again."""


class ListenerBus:
    """Hands events to all listeners, in the order of the events."""

    def __init__(self) -> None:
        self._listeners: list[StreamingListener] = []
        self._lock = threading.RLock()

    def add(self, listener: StreamingListener) -> None:
        """Add a listener."""
        with self._lock:
            self._listeners.append(listener)

    def post(self, event: str, *args: object) -> None:
        """Call the method named ``event`` of every listener."""
        with self._lock:
            for listener in self._listeners:
                try:
                    getattr(listener, event)(*args)
                except Exception:
                    _log.exception("Listener %r failed in %s", listener, event)
