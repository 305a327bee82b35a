"""What a program can learn of its batches and receivers while they run."""

from __future__ import annotations

import logging
import threading
from collections import deque

from penstock.streaming.core.events import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
    StreamingListenerStreamingStarted,
)

__all__ = ["ListenerBus", "StreamingListener"]

_log = logging.getLogger(__name__)


class StreamingListener:
    """Subclass it, and give it to ``StreamingContext.addStreamingListener``.

    Of one batch the order is: submitted, started, each output operation's start and end, completed.
    Calls come from engine threads, one at a time, and hold the engine up: they must be quick. What
    they raise is logged.

    Source: ``pyspark.streaming.StreamingListener``.
    """

    def onStreamingStarted(self, streamingStarted: StreamingListenerStreamingStarted) -> None:
        """Called when the program is started, before all else."""

    def onReceiverStarted(self, receiverStarted: StreamingListenerReceiverStarted) -> None:
        """Called when a receiver receives, also after it was started again."""

    def onReceiverError(self, receiverError: StreamingListenerReceiverError) -> None:
        """Called when a receiver had an error; if it ended by it, it is started again."""

    def onReceiverStopped(self, receiverStopped: StreamingListenerReceiverStopped) -> None:
        """Called when a receiver receives no more, for now or for good."""

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Called when a batch is planned and its jobs wait."""

    def onBatchStarted(self, batchStarted: StreamingListenerBatchStarted) -> None:
        """Called when the first job of a batch starts."""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Called when all jobs of a batch ended and it is committed, or one of them failed."""

    def onOutputOperationStarted(
        self, outputOperationStarted: StreamingListenerOutputOperationStarted
    ) -> None:
        """Called when a job of a batch starts."""

    def onOutputOperationCompleted(
        self, outputOperationCompleted: StreamingListenerOutputOperationCompleted
    ) -> None:
        """Called when a job of a batch ended, well or not."""


class ListenerBus:
    """Hands events to all listeners, in the order in which they were put."""

    def __init__(self) -> None:
        self._listeners: list[StreamingListener] = []
        self._events: deque[object] = deque()
        self._delivering = threading.RLock()

    @property
    def has_listeners(self) -> bool:
        """Whether anyone listens."""
        return bool(self._listeners)

    def add(self, listener: StreamingListener) -> None:
        """Add a listener."""
        with self._delivering:
            self._listeners.append(listener)

    def put(self, event: object) -> None:
        """Queue an event; quick, so that it can be called under the lock that gives the order."""
        self._events.append(event)

    def deliver(self) -> None:
        """Call listeners for all that is queued; when it returns, all put before was delivered."""
        with self._delivering:
            while self._events:
                event = self._events.popleft()
                method = f"on{type(event).__name__.removeprefix('StreamingListener')}"
                for listener in self._listeners:
                    try:
                        getattr(listener, method)(event)
                    except Exception:
                        _log.exception("Listener %r failed in %s", listener, method)

    def post(self, event: object) -> None:
        """Have listeners called for an event, and wait for it."""
        self.put(event)
        self.deliver()
