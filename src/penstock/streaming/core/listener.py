"""Listeners: events of a program's batches and receivers at run time."""

from __future__ import annotations

import logging
import threading
from collections import deque

from penstock.errors import printable
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

_log = logging.getLogger(__name__)


class StreamingListener:
    """Subclass it, and pass an instance to ``StreamingContext.addStreamingListener``.

    The order for one batch is: submitted, started, each output operation's start and end,
    completed. Engine threads make the calls, one at a time, and wait for them: they must be fast.
    Exceptions are logged.

    Source: ``pyspark.streaming.StreamingListener``.
    """

    def onStreamingStarted(self, streamingStarted: StreamingListenerStreamingStarted) -> None:
        """Called when the program is started, before all other calls."""

    def onReceiverStarted(self, receiverStarted: StreamingListenerReceiverStarted) -> None:
        """Called when a receiver starts to receive, also after a restart."""

    def onReceiverError(self, receiverError: StreamingListenerReceiverError) -> None:
        """Called when a receiver had an error; if it ended, it is restarted."""

    def onReceiverStopped(self, receiverStopped: StreamingListenerReceiverStopped) -> None:
        """Called when a receiver stopped receiving, for now or for good."""

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
    """Delivers events to all listeners, in the order in which they were put."""

    def __init__(self) -> None:
        self._listeners: list[StreamingListener] = []
        self._events: deque[object] = deque()
        self._delivering = threading.RLock()

    @property
    def hears_receivers(self) -> bool:
        """Whether any listener has a method for the events of receivers."""
        return any(map(_hears_receivers, self._listeners))

    def add(self, listener: StreamingListener) -> None:
        """Add a listener."""
        with self._delivering:
            self._listeners.append(listener)

    def put(self, event: object) -> None:
        """Queue an event; fast, so that it can be called under the lock that defines the order."""
        self._events.append(event)

    def deliver(self) -> None:
        """Call listeners for all queued events; they are delivered when it returns."""
        with self._delivering:
            while self._events:
                event = self._events.popleft()
                method = f"on{type(event).__name__.removeprefix('StreamingListener')}"
                for listener in self._listeners:
                    try:
                        getattr(listener, method)(event)
                    except (Exception, SystemExit) as error:
                        _log.error(
                            "Listener %r failed in %s", listener, method, exc_info=printable(error)
                        )

    def post(self, event: object) -> None:
        """Call listeners for an event, and wait for them."""
        self.put(event)
        self.deliver()


def _hears_receivers(listener: object) -> bool:
    names = ("onReceiverStarted", "onReceiverError", "onReceiverStopped")
    methods = (getattr(getattr(listener, name, None), "__func__", None) for name in names)
    return any(m is not getattr(StreamingListener, n) for n, m in zip(names, methods, strict=True))
