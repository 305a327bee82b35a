"""Steps a streaming program batch by batch, without sleeping."""

from __future__ import annotations

import threading
import time

from penstock.streaming import BatchInfo, StreamingContext, StreamingListener
from penstock.streaming.core.events import StreamingListenerBatchCompleted
from penstock.testing.manual_clock import ManualClock

_LOOK_S = 0.05
"""How often errors are looked for, which come without a batch's end."""


class Stepper(StreamingListener):
    """Moves a program's ManualClock by batch intervals and waits for the batches it caused.

    Make it before ``ssc.start()``.

    Args:
        ssc: the program, made with ``clock=clock``.
        clock: its clock.
        timeout_s: how long real work of one step may take.
    """

    def __init__(self, ssc: StreamingContext, clock: ManualClock, timeout_s: float = 60.0) -> None:
        self._ssc = ssc
        self._clock = clock
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self.completed: list[BatchInfo] = []
        """Every batch that ended, in order."""
        ssc.addStreamingListener(self)

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Note a batch."""
        with self._changed:
            self.completed.append(batchCompleted.batch_info)
            self._changed.notify_all()

    def step(self, batches: int = 1) -> list[BatchInfo]:
        """Run that many batches, one after the other; return what became of them.

        Raises:
            PenstockError: what ``awaitTermination`` raises, as soon as a batch failed.
            TimeoutError: a batch did not end in time.
        """
        before = len(self.completed)
        for _ in range(batches):
            done = len(self.completed)
            self._clock.advance(self._ssc.graph.batch_interval_ms)
            self.wait_completed(done + 1)
        return self.completed[before:]

    def wait_completed(self, count: int) -> None:
        """Wait until that many batches ended in all. Raises as ``step`` does."""
        deadline_s = time.monotonic() + self._timeout_s
        while len(self.completed) < count:
            self._ssc.awaitTermination(0)  # raises what a job raised
            with self._changed:
                self._changed.wait_for(lambda: len(self.completed) >= count, _LOOK_S)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{len(self.completed)} of {count} batches ended")
        self._ssc.awaitTermination(0)
