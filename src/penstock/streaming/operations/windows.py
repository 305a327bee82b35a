"""Operations over sliding windows of time.

A window of a batch at time t holds the records of all batches in ``(t - windowDuration, t]``. The
durations are seconds and multiples of this stream's own slide (the batch interval, unless it is the
result of another window). Records count in the batch that took them: after a downtime, or when
batches fall behind, that is a later batch than the one that was due when they arrived. Windows that
ended while the driver was down are processed at the next start if they hold records
(docs/adr/0007-missed-slides.md).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from operator import add, sub
from typing import TYPE_CHECKING, Any

from pyspark.resultiterable import ResultIterable

from penstock.streaming.operations.pairs import PairOperations
from penstock.streaming.operations.window_times import check_duration, is_worth_inverting

if TYPE_CHECKING:
    from penstock.streaming.operations.dstream import DStream

_Reduce = Callable[[Any, Any], Any]


class WindowOperations(PairOperations):
    """Operations on windows of a stream. Names and meaning: ``pyspark.streaming``.

    All raise ConfigError for a duration that is not a positive multiple of this stream's slide.
    """

    @abstractmethod
    def _windowed(self, window_ms: int, slide_ms: int) -> DStream:
        """Return the stream of the records in each window."""

    def window(self, windowDuration: float, slideDuration: float | None = None) -> DStream:
        """Return a stream of all records in a window that ends at each slide."""
        return self._windowed(*self._durations(windowDuration, slideDuration))

    def reduceByWindow(
        self,
        reduceFunc: _Reduce,
        invReduceFunc: _Reduce | None,
        windowDuration: float,
        slideDuration: float,
        name: str | None = None,
    ) -> DStream:
        """Return a stream with each window's records merged into one.

        Args:
            reduceFunc: merges two records; associative and commutative.
            invReduceFunc: removes a record; see ``reduceByKeyAndWindow``.
            windowDuration: width of the window, in seconds.
            slideDuration: time between windows, in seconds.
            name: see ``reduceByKeyAndWindow``.
        """
        keyed = self.map(lambda record: (1, record))
        reduced = keyed.reduceByKeyAndWindow(
            reduceFunc, invReduceFunc, windowDuration, slideDuration, 1, name=name
        )
        return reduced.map(lambda pair: pair[1])

    def countByWindow(
        self, windowDuration: float, slideDuration: float, name: str | None = None
    ) -> DStream:
        """Return a stream with the number of records in each window; none before the first.

        ``name`` is as in ``reduceByKeyAndWindow``.
        """
        ones = self.map(lambda _: 1)
        return ones.reduceByWindow(add, sub, windowDuration, slideDuration, name)

    def countByValueAndWindow(
        self,
        windowDuration: float,
        slideDuration: float,
        numPartitions: int | None = None,
        name: str | None = None,
    ) -> DStream:
        """Return a stream of pairs of each distinct record in a window and its number in it.

        ``name`` is as in ``reduceByKeyAndWindow``.
        """
        ones = self.map(lambda record: (record, 1))
        counted = ones.reduceByKeyAndWindow(
            add, sub, windowDuration, slideDuration, numPartitions, name=name
        )
        return counted.filter(lambda pair: pair[1] > 0)

    def groupByKeyAndWindow(
        self, windowDuration: float, slideDuration: float, numPartitions: int | None = None
    ) -> DStream:
        """Return a stream of pairs of a key and an iterable of its values in the window.

        Windows are computed from their batches, without an inverse function: unlike in PySpark, a
        key is not in the result if all of its values have left the window.
        """
        lists = self.mapValues(lambda value: [value])
        grouped = lists.reduceByKeyAndWindow(
            lambda left, right: left.extend(right) or left,
            None,
            windowDuration,
            slideDuration,
            numPartitions,
        )
        return grouped.mapValues(ResultIterable)

    def reduceByKeyAndWindow(
        self,
        func: _Reduce,
        invFunc: _Reduce | None,
        windowDuration: float,
        slideDuration: float | None = None,
        numPartitions: int | None = None,
        filterFunc: Callable[[Any], bool] | None = None,
        name: str | None = None,
    ) -> DStream:
        """Return a stream of pairs with each window's values of a key merged.

        Args:
            func: merges two values; associative and commutative.
            invFunc: ``invFunc(func(x, y), y) == x``. With it a window of five slides or more is
                derived from the previous one: new values are merged, and values that left are
                removed. A key without values stays, also across restarts, with the result of
                ``invFunc``, unless ``filterFunc`` drops it.
            windowDuration: width of the window, in seconds.
            slideDuration: time between windows, in seconds; this stream's slide by default.
            numPartitions: partitions of each RDD; Spark's default parallelism by default.
            filterFunc: selects the pairs to keep; used with ``invFunc`` only, as in PySpark.
            name: identifies the windows with ``invFunc`` after a restart; set it to keep them when
                the program's operators change order.

        Raises:
            ConfigError: a duration is invalid, or the name is not a valid file name.
            StreamingError: another operator has the name.
        """
        window_ms, slide_ms = self._durations(windowDuration, slideDuration)
        reduced = self.reduceByKey(func, numPartitions)
        if invFunc is None:
            return reduced._windowed(window_ms, slide_ms).reduceByKey(func, numPartitions)
        operator = self.ssc.graph.operators.add("reduceByKeyAndWindow", name)
        if not is_worth_inverting(window_ms, slide_ms):
            whole = reduced._windowed(window_ms, slide_ms).reduceByKey(func, numPartitions)
            return whole if filterFunc is None else whole.filter(filterFunc)
        from penstock.streaming.state.state_dstream import ReducedWindowDStream  # a DStream itself

        return ReducedWindowDStream(
            reduced,
            operator,
            window_ms,
            slide_ms,
            func=func,
            inverse=invFunc,
            keep=filterFunc,
            partitions=numPartitions,
        )

    def _durations(self, window: float, slide: float | None) -> tuple[int, int]:
        parent_ms = self.slide_ms
        window_ms = check_duration("windowDuration", window, parent_ms)
        slide_ms = parent_ms if slide is None else check_duration("slideDuration", slide, parent_ms)
        return window_ms, slide_ms
