"""Inputs: streams that are read from outside by offsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.sql import SparkSession

from penstock.driver.feed import ReceiverFeed
from penstock.errors import PenstockError, RecoveryMismatchError
from penstock.model import check_name
from penstock.rate import Carry, RangeLimits, RateController, RateEstimator
from penstock.storage import Storage
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.operations.dstream import DStream

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program


@dataclass(frozen=True, slots=True)
class InputContext:
    """The data with which an input is opened at its program's start."""

    journal: Storage
    """The journal in the program's own checkpoint location."""
    storage: Storage
    """The checkpoint location; an input may keep files in folders of ``sources/<name>``."""
    location_id: str
    """The checkpoint location's id: stays over restarts, and no two locations share one."""
    location_url: str
    start: SourceOffset
    """The start of the next batch; None for an input that is new, or at its beginning."""
    first_offset: Callable[[Callable[[], SourceOffset]], SourceOffset]
    """Returns where the input's first batch begins, in the life of the checkpoint location.

    If none is recorded yet, calls the given function and makes its result durable. None for an
    input that has batches, and whose record was removed.
    """
    oldest_start: Callable[[], SourceOffset]
    """Returns where the oldest batch begins that may be processed again."""


class InputDStream(DStream):
    """A stream read by offsets. Each batch takes everything after one offset up to another.

    The engine knows inputs by these methods alone, and calls them in this order:

        at start    check_offset -> open -> initial_offset, once in the life of a location
                    -> recall, can_read_again for the batches of earlier runs
        per batch   latest_offset -> cut -> offsets/N durable -> compute_range
                    -> commits/N durable, and no other driver seen after it -> on_committed
                    -> on_released, when no window needs the records
        at the end  close, also when the start failed after open

    After a failure it asks for the records of the same range again.
    """

    kind = "input"
    takes_limits = False
    """Whether ``cut`` applies limits. Other inputs can only be paused."""
    reports_input = True
    """Whether listeners are told what each batch takes of it (``streamIdToInputInfo``).

    The rate is learned from that, so an input that ``takes_limits`` does.
    """
    is_volatile = False
    """Whether its data is in the driver's memory only, and lost when the process ends."""
    merges_ticks = True
    """Whether late ticks share a batch; not if the number of batches is part of what it gives."""
    needs_location = False
    """Whether reading the source needs a checkpoint location that outlives the process."""
    is_pushed = False
    """Whether a source gives its records away, so that only the location has them."""
    is_named: bool
    """Whether the program gave it its name."""
    continues_in_source = False
    """Whether a restart continues in a source that keeps its data, by what the location holds."""

    def __init__(self, ssc: Program, name: str | None = None) -> None:
        super().__init__(ssc)
        self.id = len(ssc.graph.inputs)
        """This input's index among the program's inputs, from 0."""
        self.name = check_name("stream", f"{self.kind}-{self.id}" if name is None else name)
        self.is_named = name is not None
        self.max_rate: float | None = None
        """Highest rate that the program set for this input; None for that of the settings."""
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
        """The number of receivers that share the input's rate."""
        return 1

    @property
    def session(self) -> SparkSession:
        """The process's session, for DataFrames; started if there is none."""
        return SparkSession.builder.getOrCreate()

    @property
    def feed(self) -> ReceiverFeed | None:
        """The stream of the program's own receivers for this input; None without receivers."""
        return None

    def open(self, context: InputContext) -> None:
        """Connect to the source; called once, at the program's start, before all but checks.

        What it raises ends the start.
        """

    def close(self) -> None:
        """Close what ``open`` opened; nothing is planned after that. May be called twice."""

    def initial_offset(self) -> SourceOffset:
        """Return where the first batch begins; None for the source's very beginning.

        Called once in the life of a checkpoint location, and made durable before anything else, so
        that what it says, such as where the source ends now, holds after a crash before the first
        batch, too. An input that must know it to ``open`` uses ``InputContext.first_offset``.
        """
        return None

    @abstractmethod
    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return how far the batch of that time goes, which begins after ``start``.

        The answer is ``{self.name: JSON value}``, or None for nothing yet; ``start`` is the answer
        for the batch before, or ``initial_offset``. Called on the engine's planning thread, for
        batch times that only grow; must be quick and must not read the records.
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
            wanted: the available range.
            limits: of the batch; even strict limits must let records pass eventually.
            carry: from the previous cut; lost at a restart.
        """
        return wanted, carry

    def unreadable_records(self) -> int:
        """Return how many records the source has behind its end, which cannot be read yet."""
        return 0

    def rateController(
        self,
        estimator: RateEstimator,
        *,
        initial_rate: float,
        min_rate: float,
        max_rate: float | None,
    ) -> RateController | None:
        """Return the controller of this input's rate if back pressure is on; may be overridden.

        Called once, at start, and only if back pressure is enabled and the input takes limits.
        With None the input's rate stays at its highest rate.
        """
        return RateController(
            self.name, estimator, initial_rate=initial_rate, min_rate=min_rate, max_rate=max_rate
        )

    @abstractmethod
    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the records of a range."""

    def has_records(self, planned: SourceRange) -> bool:
        """Whether a range may hold records; if so, a graceful stop takes the rest."""
        return bool(planned.start != planned.end)

    def metadata(self, wanted: SourceRange) -> dict[str, Any]:
        """Return the information on a range for listeners, with a ``Description`` for users."""
        return {}

    def record_count(self, wanted: SourceRange) -> int:
        """Return the number of records in a range, 0 if unknown."""
        return 0

    def find_damage(self, wanted: SourceRange, error: str) -> PenstockError | None:
        """Return the damage of files of a range that the text of an error names.

        None if there is none, or it is unknown. Reads only files that the error names.
        """
        return None

    def can_read_again(self, wanted: SourceRange) -> bool:
        """Whether records of an earlier run's batch still exist, for windows that need them.

        Raises:
            PenstockError: they should exist, and do not.
        """
        return True

    def on_committed(self, done: SourceRange) -> None:
        """Learn that a batch that took that range is committed, which is durable.

        So it never runs again, and the source may forget what only a repeated batch would ask for.
        Called on the planning thread, before ``on_released``, in the order of the batches, and not
        past one that failed; not for a batch that took nothing. No other driver had taken over
        when the batch was committed, so a fenced driver calls nothing.

        Once for each batch unless something fails: at least once after a crash, when the next run
        repeats the calls that the newest entry of the offset log does not record, so this must be
        idempotent. What it raises is logged, and the call is repeated when the next batch is done;
        until then nothing of the batch is released.
        """

    def on_released(self, done: SourceRange) -> None:
        """Learn that no batch or window needs records up to the end of that range any more.

        In no run: the batches that took them are done, which is durable, and no other driver has
        taken over. What it raises is logged, and the call is repeated when the next batch is done.
        """

    @property
    def recall_ms(self) -> int:
        """How long this input must remember the ranges of earlier batches, to plan later ones."""
        return 0

    def recall(self, taken: SourceRange) -> None:
        """Recall the range of an earlier run's batch; called oldest first, before any planning."""

    def check_offset(self, offset: SourceOffset) -> None:
        """Refuse, at start, an offset of another input.

        An input whose offsets have another form than ``{self.name: JSON value}`` overrides this.

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
        """Return the value under this input's name in an offset, None for None.

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
        """Set the range of the batch of that time."""
        self._ranges[time_ms] = planned

    def range_of(self, time_ms: int) -> SourceRange:
        """Return the range of the batch of that time; an empty one if its records are gone."""
        return self._ranges.get(time_ms, SourceRange(None, None))

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the planned range of that batch; None if it is not remembered."""
        planned = self._ranges.get(time_ms)
        return None if planned is None else self.compute_range(planned)

    def release_ranges(self, until_ms: int) -> None:
        """Drop the ranges of batches up to that time, and release their records."""
        for time_ms in sorted(t for t in self._ranges if t <= until_ms):
            self.on_released(self._ranges[time_ms])
            del self._ranges[time_ms]
