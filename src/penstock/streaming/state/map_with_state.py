"""mapWithState: streams with state in versions in the checkpoint location.

A batch's update is a separate Spark job that the batch's other jobs wait for: it updates the state
from the previous version to the batch's version, and the driver publishes that version. The RDDs of
this stream only read the result of the update (penstock.state.partition explains why it never
differs), so they can be computed any number of times, also in later runs.

Invariants:

1. Updates run in the order of their batches, each once: a failed update is retried before the next
   one, and an update whose version already exists is not run.
2. Every batch of this stream has an update, whether or not an output uses the batch.
3. A batch is committed after its update, so version N exists for every committed batch N.
4. Versions are kept as long as this stream's RDDs, and the newest committed one is always kept.

Source: ``org.apache.spark.streaming.dstream.MapWithStateDStream``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark import RDD, SparkContext

from penstock.clock import iso_time
from penstock.conf import codec_name
from penstock.driver.executors import has_executors
from penstock.errors import (
    MissingStateError,
    RecoveryMismatchError,
    StorageError,
    StreamingError,
)
from penstock.state import (
    LoadTask,
    OutputsTask,
    PartitionVersion,
    SnapshotTask,
    StatePlace,
    UpdateTask,
    Version,
    VersionLog,
    new_run,
    partition_of,
    read_version,
)
from penstock.state.layout import version_path
from penstock.state.state_file import CODECS
from penstock.storage import Storage
from penstock.streaming.core.recorded_conf import warn_of_update
from penstock.streaming.core.session_conf import SessionConf
from penstock.streaming.core.stored_state import StoredStateStream
from penstock.streaming.operations.dstream import DStream
from penstock.streaming.operations.state_spec import StateSpec
from penstock.streaming.state.ahead_of_log import check_state_is_planned

__all__ = ["MapWithStateDStream"]

_log = logging.getLogger(__name__)
_PARTITIONS = "spark.penstock.statePartitions"
_CODEC = "spark.sql.streaming.stateStore.compression.codec"


class MapWithStateDStream(DStream, StoredStateStream):
    """The results of a function of each record and its key's state.

    Raises:
        StreamingError: another operator has the name.
        ConfigError: the name is not a valid file name.
    """

    def __init__(self, parent: DStream, spec: StateSpec, name: str | None) -> None:
        super().__init__(parent.ssc)
        self._parent = parent
        self._spec = spec
        # Its versions have the number of partitions; it is checked against them (_Run.begin).
        self.operator = parent.ssc.graph.operators.add("mapWithState", name, {})
        self._run: _Run | None = None

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The stream of pairs."""
        return (self._parent,)

    def stateSnapshots(self) -> DStream:
        """Return a stream of all keys and their state, as pairs, after each batch."""
        return _StateSnapshots(self)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the result of that batch's update; the update runs with the batch."""
        run = self._running()
        if not run.has_update(time_ms):
            if time_ms < run.first_ms:
                run.warn_of_gap(time_ms)
                return None
            run.add_update(time_ms, self._parent.get_or_compute(time_ms))
        return run.rdd(OutputsTask(run.place, time_ms))

    def compute_snapshot(self, time_ms: int) -> RDD[Any] | None:
        """Return all keys and their state after the batch of that time."""
        if self.get_or_compute(time_ms) is None:
            return None
        run = self._running()
        return run.rdd(SnapshotTask(run.place, time_ms))

    def open_state(self, storage: Storage) -> None:
        """List the existing versions; raises StorageError."""
        self._run = _Run(self.ssc.sparkContext, storage, self.operator.name, self._spec)

    def begin_state(
        self, first_ms: int, committed_ms: int | None, planned_ms: int
    ) -> Mapping[str, str]:
        """Check that the state matches, or load the initial state if there is none yet."""
        every_batch = self.slide_ms == self.ssc.graph.batch_interval_ms
        run = self._running()
        run.begin(first_ms, committed_ms if every_batch else None, planned_ms)
        return run.conf

    def update_state(self, time_ms: int) -> None:
        """Run the pending updates of all batches up to that time."""
        self._running().run_updates(time_ms)

    def clear_checkpoint_data(self, done_ms: int, needed_after_ms: int) -> None:
        """Also delete the versions that no remembered RDD reads."""
        super().clear_checkpoint_data(done_ms, needed_after_ms)
        self._running().retire(done_ms - self.remember_ms)

    def _running(self) -> _Run:
        if self._run is None:
            raise StreamingError(
                "the state is not open before the context starts",
                operation="mapWithState",
                ids={"operator": self.operator.name},
                hint="start the context first",
            )
        return self._run

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_run": None}


class _StateSnapshots(DStream):
    """All keys and their state, after each batch."""

    def __init__(self, parent: MapWithStateDStream) -> None:
        super().__init__(parent.ssc)
        self._parent = parent

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The stream that keeps the state."""
        return (self._parent,)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the state after the batch of that time."""
        return self._parent.compute_snapshot(time_ms)


def _codec(sc: SparkContext) -> str:
    """Return how files are compressed: as the setting says, if Python has that codec."""
    codec = codec_name(SessionConf(sc).get(_CODEC) or CODECS[0])
    if codec not in CODECS:
        _log.warning("%s is %s: files of state are compressed by lz4", _CODEC, codec)
    return codec if codec in CODECS else CODECS[0]


class _Run:
    """An operator's state in one run of the driver.

    The planning thread adds and retires, threads of jobs run updates; ``_updating`` is held while
    an update's job runs, ``_lock`` for moments.
    """

    def __init__(self, sc: SparkContext, storage: Storage, operator: str, spec: StateSpec) -> None:
        self.place = StatePlace(storage, operator, new_run(), _codec(sc))
        self.first_ms = 0
        self.conf: dict[str, str] = {}
        """What each batch records: the number of partitions."""
        self._sc = sc
        self._spec = spec
        # Each process has its own memory; otherwise tasks on this host write to files of this
        # process.
        apart = has_executors(sc) or storage.url.startswith("memory:")
        self._log = VersionLog(storage, operator, check_files=apart)
        self._versions: dict[int, Version] = {}
        self._waiting: dict[int, RDD[Any] | None] = {}
        self._updating = threading.Lock()
        self._lock = threading.RLock()
        self._slots: RDD[int] | None = None
        self._empty = Version(0, ())

    def begin(self, first_ms: int, committed_ms: int | None, planned_ms: int) -> None:
        """Set the first batch; raises if the program cannot continue."""
        self.first_ms = first_ms
        name = f"{_PARTITIONS}.{self.place.operator}"
        count = self._spec.partitions or self._sc.defaultParallelism
        if self._log.times:
            newest = self._read(self._log.times[-1])
            self._check(newest, committed_ms)
            place, times = self.place, self._log.times
            files = {t: place.storage.uri(version_path(place.operator, t)) for t in times}
            check_state_is_planned(place.operator, files, planned_ms)
            if (stored := len(newest.partitions)) != count:
                warn_of_update(name, str(count), str(stored))
                count = stored
        self.conf = {name: str(count)}
        self._empty = Version(0, (PartitionVersion(),) * count)
        if not self._log.times:
            self._load_initial_state()

    def has_update(self, time_ms: int) -> bool:
        """Whether the update of that batch has run or is pending."""
        with self._lock:
            return time_ms in self._waiting or time_ms in self._log.times

    def add_update(self, time_ms: int, records: RDD[Any] | None) -> None:
        """Schedule the update of that batch to run with it."""
        with self._lock:
            self._waiting[time_ms] = records

    def run_updates(self, until_ms: int) -> None:
        """Run pending updates up to that time, in order; at most one thread at a time."""
        with self._updating:
            with self._lock:
                due = sorted(time_ms for time_ms in self._waiting if time_ms <= until_ms)
            for time_ms in due:
                self._update(time_ms, self._waiting[time_ms])
                with self._lock:
                    del self._waiting[time_ms]

    def retire(self, needed_ms: int) -> None:
        """Delete the versions before the newest one at or before that time.

        A failed deletion is retried when the next batch is committed.
        """
        with self._lock:
            try:
                self._log.retire(needed_ms)
            except StorageError:
                _log.warning(
                    "Old versions of the state of operator %s cannot be deleted",
                    self.place.operator,
                    exc_info=True,
                )
            kept = set(self._log.times)
            self._versions = {t: v for t, v in self._versions.items() if t in kept}

    def rdd(self, task: OutputsTask | SnapshotTask) -> RDD[Any]:
        """Return an RDD of the results of a task for each partition."""
        if self._slots is None:
            count = len(self._empty.partitions)
            self._slots = self._sc.parallelize(range(count), count)
        return self._slots.mapPartitionsWithIndex(task)

    def warn_of_gap(self, time_ms: int) -> None:
        """Warn of an earlier batch that a window needs and that was not kept."""
        if self._log.times:
            _log.warning(
                "The records of operator %s of %s are gone, because no window needed them "
                "before; windows that reach back to it lack them",
                self.place.operator,
                iso_time(time_ms),
            )

    # -- updates --

    def _update(self, time_ms: int, records: RDD[Any] | None) -> None:
        before = self._newest()
        if before.time_ms >= time_ms:
            later = iso_time(before.time_ms)
            raise self._missing(time_ms, f"is missing, though there is one of {later}")
        partitions = before.partitions
        if not self._is_idle(before, time_ms, records):
            partitions = self._run_update(before, time_ms, records)
        version = Version(time_ms, partitions)
        self._log.publish(version)
        with self._lock:
            self._versions[time_ms] = version

    def _is_idle(self, before: Version, time_ms: int, records: RDD[Any] | None) -> bool:
        """Whether a batch has neither records nor keys that may time out."""
        if records is not None and records.getNumPartitions() > 0:
            return False
        timeout_ms = self._spec.timeout_ms
        return timeout_ms is None or not before.may_be_untouched_since(time_ms - timeout_ms)

    def _run_update(
        self, before: Version, time_ms: int, records: RDD[Any] | None
    ) -> tuple[PartitionVersion, ...]:
        task = UpdateTask(
            self.place,
            self._spec.function_at(time_ms),
            time_ms,
            self._spec.timeout_ms,
            before.tips,
            self._oldest().tips,
        )
        return self._run_job(self._sc.emptyRDD() if records is None else records, task)

    def _load_initial_state(self) -> None:
        pairs = self._spec.initial_rdd(self._sc)
        if pairs is not None:
            task = LoadTask(self.place, self.first_ms)
            self._log.publish(Version(0, self._run_job(pairs, task)))

    def _run_job(
        self, pairs: RDD[Any], task: UpdateTask | LoadTask
    ) -> tuple[PartitionVersion, ...]:
        placed = pairs.partitionBy(len(self._empty.partitions), partition_of)
        return tuple(placed.mapPartitionsWithIndex(task).collect())

    # -- versions --

    def _newest(self) -> Version:
        return self._read(self._log.times[-1]) if self._log.times else self._empty

    def _oldest(self) -> Version:
        with self._lock:  # otherwise it might be retired before it is read
            return self._read(self._log.times[0]) if self._log.times else self._empty

    def _read(self, time_ms: int) -> Version:
        with self._lock:
            if time_ms not in self._versions:
                found = read_version(self.place.storage, self.place.operator, time_ms)
                self._versions[time_ms] = found
            return self._versions[time_ms]

    def _check(self, newest: Version, committed_ms: int | None) -> None:
        wanted = self._spec.partitions
        if wanted not in (None, len(newest.partitions)):
            raise RecoveryMismatchError(
                f"the state of operator {self.place.operator!r} has {len(newest.partitions)} "
                f"partitions, and the program requests {wanted}",
                operation="recover",
                path=self.place.storage.url,
                ids={"operator": self.place.operator},
                hint="keep numPartitions, or omit it; state is not repartitioned",
            )
        if committed_ms is not None and newest.time_ms < committed_ms:
            raise self._missing(committed_ms, "is missing, although that batch is committed")

    def _missing(self, time_ms: int, what: str) -> MissingStateError:
        return MissingStateError(
            f"version {time_ms} ({iso_time(time_ms)}) of the state of operator "
            f"{self.place.operator!r} {what}",
            operation="recover",
            path=self.place.storage.url,
            ids={"operator": self.place.operator},
            hint="restore the operator's folder from a copy of that time; without one, move it away"
            " to begin with empty state",
        )
