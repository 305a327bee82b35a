"""Windows with an inverse function: each is derived from the previous window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import RDD

from penstock.streaming.core import transforms
from penstock.streaming.core.operators import Operator
from penstock.streaming.operations.dstream import DStream
from penstock.streaming.operations.sliding_windows import SlidingWindows
from penstock.streaming.operations.window_times import step_window
from penstock.streaming.state.state_in_rdds import RddStateDStream


class ReducedWindowDStream(SlidingWindows, RddStateDStream):
    """Each window's values by key, derived from the previous window.

    The parent holds each batch's values, merged by key. The first window is computed from all its
    batches. Keys stay after their values left, so a window cannot be recomputed from its batches
    alone.

    Source: ``org.apache.spark.streaming.api.python.PythonReducedWindowedDStream``.
    """

    def __init__(
        self,
        parent: DStream,
        operator: Operator,
        window_ms: int,
        slide_ms: int,
        *,
        func: Callable[[Any, Any], Any],
        inverse: Callable[[Any, Any], Any],
        keep: Callable[[Any], bool] | None,
        partitions: int | None,
    ) -> None:
        super().__init__(parent, operator, {"windowMs": window_ms, "slideMs": slide_ms})
        self._window_ms = window_ms
        self._slide_ms = slide_ms
        self._func = func
        self._inverse = inverse
        self._filter = keep
        self._partitions = partitions

    def parents_needed_after(self, after_ms: int, done_ms: int) -> int:
        """Return the beginning of the window from which a restart continues."""
        return super().parents_needed_after(after_ms, done_ms) - self._window_ms

    @property
    def records_last_ms(self) -> int:
        """A slide longer than the window: a key changes in the first window without its records."""
        return self._window_ms + self._slide_ms

    def is_aligned(self, time_ms: int) -> bool:
        """Whether windows still end at that time; a new batch interval may have moved them."""
        return (time_ms - self._initialized_at()) % self._slide_ms == 0

    def advance(self, time_ms: int, previous: RDD[Any] | None, previous_ms: int) -> RDD[Any] | None:
        """Return the reduced values of the window."""
        if previous is None:
            rdds = self._parent.rdds_between(time_ms - self._window_ms, time_ms)
            return self._reduce(rdds) if rdds else None
        step = step_window(previous_ms, time_ms, self._window_ms)
        if left := self._parent.rdds_between(*step.left):
            previous = self._subtract(previous, left)
        entered = self._parent.rdds_between(*step.entered)
        return self._reduce([previous, *entered]) if entered else previous

    def _reduce(self, rdds: list[RDD[Any]]) -> RDD[Any]:
        reduced = transforms.reduce_rdds(rdds, func=self._func, partitions=self._partitions)
        return reduced if self._filter is None else reduced.filter(self._filter)

    def _subtract(self, previous: RDD[Any], left: list[RDD[Any]]) -> RDD[Any]:
        gone = transforms.reduce_rdds(left, func=self._func, partitions=self._partitions)
        return transforms.subtract_by_key(
            previous, gone, inverse=self._inverse, partitions=self._partitions
        )
