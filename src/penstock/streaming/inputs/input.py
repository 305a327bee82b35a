"""Inputs: streams that are read from outside by offsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock.errors import PenstockError, RecoveryMismatchError, StreamingError
from penstock.model import check_name
from penstock.rate import Carry, RangeLimits, RateController, RateEstimator
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.operations.dstream import DStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["InputDStream", "QueueInputDStream"]


class InputDStream(DStream):
    """A stream read by offsets. Each batch takes everything after one offset up to another.

    The engine asks ``latest_offset`` when it plans a batch, has ``cut`` bound the answer to the
    input's rate, makes it durable, and only then asks for the records between the two; after a
    failure it asks for the same range again.
    """

    kind = "input"
    takes_limits = False
    """Whether ``cut`` keeps to limits. Other inputs can be paused, and no more."""
    reports_input = True
    """Whether listeners are told what each batch takes of it (``streamIdToInputInfo``).

    The rate is learned from that, so an input that ``takes_limits`` does.
    """

    def __init__(self, ssc: StreamingContext, name: str | None = None) -> None:
        super().__init__(ssc)
        self.id = len(ssc.graph.inputs)
        """This input's place among the program's inputs, from 0."""
        usual = f"{self.kind}-{self.id}"
        self.name = check_name("stream", usual if name is None else name)
        self.max_rate: float | None = None
        """Highest rate that the program gave this input; None for that of the settings."""
        self._ranges: dict[int, SourceRange] = {}
        ssc.graph.add_input(self)

    @property
    def parents(self) -> tuple[DStream, ...]:
        """None: an input begins the graph."""
        return ()

    @property
    def slide_ms(self) -> int:
        """The batch interval."""
        return self.ssc.graph.batch_interval_ms

    @property
    def receiver_count(self) -> int:
        """How many receivers share the input's rate."""
        return 1

    @abstractmethod
    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return how far the batch of that time goes, which begins after ``start``.

        The answer is ``{self.name: JSON value}``, or None for nothing yet; ``start`` is the answer
        for the batch before. Called on the engine's planning thread, for batch times that only
        grow; must be quick and must not read the records.
        """

    def missed_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return how far the batch of a tick goes that passed without one (``missed_ticks``).

        An input whose records have no times of their own takes nothing new: what came meanwhile
        is in the first batch after that.
        """
        return start

    def missed_times(self, start: SourceOffset, ticks: range) -> Collection[int]:
        """Return at which of the ticks that passed ``missed_offset`` would take records."""
        return ()

    def cut(
        self, wanted: SourceRange, limits: RangeLimits, carry: Carry
    ) -> tuple[SourceRange, Carry]:
        """Return the part of a range, from its start, that a batch may take, and what is carried.

        Without records that are counted by offsets there is nothing to cut by: all of it. An input
        that overrides this sets ``takes_limits``, and says in ``record_count`` what it took.

        Args:
            wanted: all that is there.
            limits: of the batch; as strict as they are, something is taken sooner or later.
            carry: from the cut before; lost at a restart.
        """
        return wanted, carry

    def rateController(
        self,
        estimator: RateEstimator,
        *,
        initial_rate: float,
        min_rate: float,
        max_rate: float | None,
    ) -> RateController | None:
        """Return what keeps this input's rate when back pressure is on; override it for one's own.

        Called once, at start, and only when ``RateController.isBackPressureEnabled(ssc.conf)``.
        None has the input's rate fixed at its highest one.

        Source: ``org.apache.spark.streaming.dstream.InputDStream``.
        """
        return RateController(
            self.name, estimator, initial_rate=initial_rate, min_rate=min_rate, max_rate=max_rate
        )

    @abstractmethod
    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a range."""

    def has_records(self, planned: SourceRange) -> bool:
        """Whether a range may hold records; a graceful stop takes what is left if it does."""
        return bool(planned.start != planned.end)

    def metadata(self, wanted: SourceRange) -> dict[str, Any]:
        """Return what listeners are told of a range, with a ``Description`` to show to users."""
        return {}

    def record_count(self, wanted: SourceRange) -> int:
        """Return how many records a range holds, 0 when that is not known."""
        return 0

    def find_damage(self, wanted: SourceRange, error: str) -> PenstockError | None:
        """Return what keeps files of a range from being read that the text of an error names.

        None when nothing does, or it is not known. Reads nothing that the error does not name.
        """
        return None

    def can_read_again(self, wanted: SourceRange) -> bool:
        """Whether records of an earlier run's batch are still there, for windows that need them.

        Raises:
            PenstockError: they should be, and are not.
        """
        return True

    def on_released(self, done: SourceRange) -> None:
        """Learn that no batch or window needs records up to the end of that range any more.

        In no run: the batches that took them are done, which is durable, and no other driver has
        taken over. What it raises is logged, and the call is repeated when the next batch is done.
        """

    @property
    def recall_ms(self) -> int:
        """For how long this input must know what earlier batches took, to plan later ones."""
        return 0

    def recall(self, taken: SourceRange) -> None:
        """Learn what a batch of an earlier run took; called oldest first, before any planning."""

    def check_offset(self, offset: SourceOffset) -> None:
        """Refuse, at start, an offset that is none of this input.

        Raises:
            RecoveryMismatchError: it is another input's.
        """
        self.own_part(offset)

    def partitions(self, offset: SourceOffset) -> dict[str, int]:
        """Return the partitions and ends in an offset ``{name: {partition: end}}``, of this input.

        Raises:
            RecoveryMismatchError: it is another input's.
        """
        part = self.own_part(offset)
        return {} if part is None else {name: int(end) for name, end in part.items()}

    def own_part(self, offset: SourceOffset) -> Any:
        """Return what stands under this input's name in an offset, None for None.

        Raises:
            RecoveryMismatchError: it is another input's.
        """
        if offset is None:
            return None
        if not isinstance(offset, dict) or set(offset) != {self.name}:
            raise RecoveryMismatchError(
                f"the checkpoint location holds offset {offset!r} in the place of stream "
                f"{self.name!r}",
                operation="recover",
                ids={"stream": self.name},
                hint="keep the program's inputs in the same order and under the same names "
                "(name=), or give it a new checkpoint location",
            )
        return offset[self.name]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ranges": {}}

    def set_range(self, time_ms: int, planned: SourceRange) -> None:
        """Learn which records the batch of that time takes."""
        self._ranges[time_ms] = planned

    def range_of(self, time_ms: int) -> SourceRange:
        """Return which records the batch of that time takes."""
        return self._ranges.get(time_ms, SourceRange(None, None))

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the records that were planned for that batch; None when it is not remembered."""
        planned = self._ranges.get(time_ms)
        return None if planned is None else self.compute_range(planned)

    def release_ranges(self, until_ms: int) -> None:
        """Forget the ranges of batches up to that time, and release their records."""
        for time_ms in sorted(t for t in self._ranges if t <= until_ms):
            self.on_released(self._ranges[time_ms])
            del self._ranges[time_ms]


class QueueInputDStream(InputDStream):
    """RDDs from a list that the program holds, one a batch or all at once; for tests.

    Its data is in memory only: a batch of it that was cut off cannot run again after a restart.
    Source: ``org.apache.spark.streaming.dstream.QueueInputDStream``.
    """

    kind = "queue"
    reports_input = False  # as in Spark

    def __init__(
        self,
        ssc: StreamingContext,
        rdds: Sequence[RDD[Any]],
        one_at_a_time: bool,
        default: RDD[Any] | None,
    ) -> None:
        super().__init__(ssc)
        self._queue = rdds
        self._one_at_a_time = one_at_a_time
        self._default = default

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the number of RDDs taken: one more, or all there are."""
        taken = self.partitions(start).get("rdds", 0)
        step = 1 if self._one_at_a_time else len(self._queue)
        return {self.name: {"rdds": max(taken, min(taken + step, len(self._queue)))}}

    def can_read_again(self, wanted: SourceRange) -> bool:
        """Whether the program's list still has them."""
        return self.partitions(wanted.end).get("rdds", 0) <= len(self._queue)

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the union of the RDDs taken, the default when there are none."""
        start = self.partitions(wanted.start).get("rdds", 0)
        end = self.partitions(wanted.end).get("rdds", 0)
        if end > len(self._queue):
            raise StreamingError(
                "the RDDs of an unfinished batch of a queueStream are gone with the process",
                operation="recover batch",
                ids={"stream": self.name},
                hint="queueStream is for tests; use a receiver's stream where batches must survive",
            )
        rdds = list(self._queue[start:end])
        sc = self.ssc.sparkContext
        if not rdds:
            # Spark's empty default has one partition, so that operations on partitions see one.
            return sc.parallelize([], 1) if self._default is None else self._default
        return rdds[0] if len(rdds) == 1 else sc.union(rdds)

    def __getstate__(self) -> dict[str, Any]:
        # RDDs belong to one SparkContext: a recovered queue is empty.
        return {**super().__getstate__(), "_queue": [], "_default": None}
