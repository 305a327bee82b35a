"""A checkpoint location: the protocol that makes batches recoverable, in files.

    metadata            {"id":"<uuid>"}: the program's identity over all its runs (see location_id)
    offsets/N           the input of batch N, durable before it runs
    commits/N           batch N is done
    sources/<name>/0    where the first batch of input <name> begins (see first_offsets)
    driver.lock         the driver (local file systems; see driver_lock)
    rewound             batches are to run again, and no driver has started yet (see rollback)

    acquire -> rerun the batches of recovery -> (plan N -> process -> commit N -> retire)*

batch_life defines the allowed steps. This module makes them durable:

1. offsets/N is created before batch N starts and never changes, so batch N processes the same
   ranges however often it runs.
2. commits/N is created after all results of batch N are durable.
3. ``retire`` removes offsets/N before commits/N: in the opposite order, after a crash in between, a
   completed batch would run again.
4. A driver that finds a batch above its own that it did not plan is fenced: it deletes its entries
   below the batches that the other driver keeps, and refuses every further step.
5. plan costs one durable file and one listing, and commit costs one durable file, regardless of the
   number of earlier batches.

Each entry's conf holds ``spark.penstock.run`` (who planned it) and ``spark.penstock.keptFrom``
(batch_life, invariant 5).

Source: Spark's MicroBatchExecution, ResolveCheckpointLocation.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import NoReturn

from penstock.checkpoint.batch_ids import describe_files, find_gaps, parse_batch_id
from penstock.checkpoint.batch_life import BatchLives, BatchState
from penstock.checkpoint.batch_plan import RUN, plan_of
from penstock.checkpoint.commit_log import CommitLog, CommitMetadata
from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.first_offsets import FirstOffsets
from penstock.checkpoint.local_files import local_path
from penstock.checkpoint.location_id import LocationId
from penstock.checkpoint.offset_log import OffsetLog, OffsetSeq
from penstock.checkpoint.recovery import RecoveryPlan, plan_recovery
from penstock.checkpoint.rollback import REWOUND, START_ELSEWHERE
from penstock.errors import (
    CheckpointError,
    ConcurrentDriverError,
    ConfigError,
    LogFormatError,
    LogGapError,
    StorageError,
)
from penstock.storage import Storage, open_storage

_KEPT_FROM = "spark.penstock.keptFrom"
_log = logging.getLogger(__name__)
_Stale = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids in the offset log and in the commit log that are ignored (batch_life, invariant 5)."""


class CheckpointLocation:
    """The checkpoint location at a path or URL, or in an open storage.

    Readers need no lock, so operator tools can read a location while its driver runs. The driver
    first calls ``acquire`` (or uses a ``with`` block), and may then take the steps of its batches
    from any thread; all except ``run``, ``commit``, ``fail`` and ``confirm`` from one at a time.

    Raises ConfigError if the location cannot be used (see open_storage).
    """

    def __init__(self, place: str | os.PathLike[str] | Storage) -> None:
        self.storage = place if isinstance(place, Storage) else open_storage(place)
        self.offsets = OffsetLog(self.storage)
        self.commits = CommitLog(self.storage)
        self.first_offsets = FirstOffsets(self.storage)
        self._id = LocationId(self.storage)
        lock_path = local_path(self.storage, LOCK_NAME)
        self._driver_lock = DriverLock(lock_path) if lock_path is not None else None
        self._mutex = threading.Lock()
        self._lives: BatchLives | None = None
        self._fenced: ConcurrentDriverError | None = None
        self._run = ""
        self._retain = 0
        self._listed_s = 0.0

    @property
    def url(self) -> str:
        """The location as a URL."""
        return self.storage.url

    def acquire(self, min_batches_to_retain: int = 100) -> RecoveryPlan:
        """Become the driver of this location; return the batches to run again, and the next id.

        The first driver sets the location's id. Entries of a fenced driver are removed, with a
        warning. The logs keep ``min_batches_to_retain`` batches besides the newest.

        Raises ConfigError for a number below 1, ConcurrentDriverError when another driver holds the
        location (see driver_lock for stores without locks), and as ``recover`` and ``read_id``.
        """
        if min_batches_to_retain < 1:
            raise ConfigError(
                f"min_batches_to_retain is {min_batches_to_retain}",
                operation="acquire checkpoint location",
                path=self.url,
                hint="keep 1 batch or more; Spark keeps 100",
            )
        if self._driver_lock is not None:
            self._driver_lock.acquire()
        try:
            for log in (self.offsets, self.commits):
                log.sweep()
            plan, lives, stale = self._recover()
            if plan.next_batch_id == 0:
                self._id.ensure()
            self._id.read()
            self._remove_stale(stale, lives.kept_from)
            if plan.rerun:
                self.storage.delete(REWOUND)
        except BaseException:
            self.release()
            raise
        self._run, self._retain = uuid.uuid4().hex, min_batches_to_retain
        self._lives, self._fenced = lives, None
        self._listed_s = time.monotonic()
        return plan

    def release(self) -> None:
        """Stop being the driver; does nothing if this is not the driver."""
        self._lives = None
        if self._driver_lock is not None:
            self._driver_lock.release()

    def __enter__(self) -> CheckpointLocation:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def recover(self) -> RecoveryPlan:
        """Determine the batches to run again and the next id, from a listing of both logs.

        Raises LogGapError, which names the files, if some are missing (see recovery),
        LogFormatError if the newest entry of one is damaged or of a newer version.
        """
        return self._recover()[0]

    # -- the steps of a batch --

    def plan(self, batch_id: int, offsets: OffsetSeq, needed_from: int | None = None) -> str:
        """Make the input of the next batch durable; the batch may run when this returns its plan.

        All entries from batch ``needed_from`` on are kept.

        After a StorageError the batch may or may not be planned: repeat the call with the same
        offsets. Raises ConcurrentDriverError if another driver planned this batch or a later one:
        this driver is fenced, and its further calls have no effect. Raises CheckpointError when it
        is not the next batch or this is not the driver, StorageError when the file cannot be
        written.
        """
        with self._mutex:
            kept_from = self._driving().begin_plan(batch_id, self._retain, needed_from)
        own = {RUN: self._run, _KEPT_FROM: str(kept_from)}
        entry = replace(offsets, conf={**offsets.conf, **own})
        try:
            self.offsets.add(batch_id, entry)
        except ConcurrentDriverError as error:
            self._lose(error)
        self.confirm()
        with self._mutex:
            self._driving().plan(batch_id)
        return plan_of(entry)

    def run(self, batch_id: int) -> None:
        """Record that the jobs of a planned batch may write from now on."""
        self._enter(batch_id, BatchState.RUNNING)

    def commit(self, batch_id: int, next_batch_watermark_ms: int = 0) -> None:
        """Record durably that a batch is done; call it when all results of the batch are durable.

        May be repeated. Raises CheckpointError when the batch has failed, or was not planned, or
        this is not the driver, ConcurrentDriverError when it was committed with another watermark
        or this driver is fenced, StorageError when the file cannot be written.
        """
        with self._mutex:
            lives = self._driving()
            is_repeated = lives.is_committed(batch_id)
            if lives.state(batch_id) is BatchState.PLANNED:
                lives.enter(batch_id, BatchState.RUNNING)
            if not is_repeated:
                lives.check(batch_id, BatchState.COMMITTED)
        if not self.commits.add(batch_id, CommitMetadata(next_batch_watermark_ms)):
            # By this driver, if the storage's answer was lost, or by another one that ran it.
            self._check_sole()
        if not is_repeated:
            self._enter(batch_id, BatchState.COMMITTED)

    def fail(self, batch_id: int) -> None:
        """Record that a batch failed: it runs again in the next run."""
        self._enter(batch_id, BatchState.FAILED)

    def confirm(self, max_age_s: float = 0.0) -> None:
        """List the offset log: confirm the committed batches, unless another driver is seen.

        Does nothing if the log was listed less than ``max_age_s`` ago.

        Raises ConcurrentDriverError when another driver has planned a batch, CheckpointError when
        this is not the driver, StorageError when the log cannot be listed.
        """
        with self._mutex:
            committed = self._driving().committed()
        if max_age_s and time.monotonic() - self._listed_s < max_age_s:
            return
        self._check_sole()
        with self._mutex:
            lives = self._driving()
            for batch_id in committed:
                if lives.state(batch_id) is BatchState.COMMITTED:  # not confirmed in the meantime
                    lives.enter(batch_id, BatchState.CONFIRMED)

    @property
    def next_id(self) -> int:
        """The id of the batch that this driver plans next."""
        with self._mutex:
            return self._driving().next_id

    def undone(self) -> list[int]:
        """Return the batches of this driver that are planned and not committed, oldest first."""
        with self._mutex:
            return self._driving().undone()

    def release_batches(self) -> int | None:
        """Release the confirmed batches before all others; return the newest, None without one."""
        with self._mutex:
            return self._driving().release()

    def ended_until(self) -> int:
        """Return the newest batch up to which no batch will run in this run, -1 if none."""
        with self._mutex:
            return self._driving().ended_until()

    def retire(self) -> int:
        """Delete the log entries below the newest entry's ``kept_from``; return the oldest kept.

        Raises CheckpointError when this is not the driver, StorageError when a file cannot be
        deleted (the next call retries; until then the entry is ignored).
        """
        with self._mutex:
            kept_from = self._driving().kept_from
        self.offsets.purge(kept_from)
        self.commits.purge(kept_from)
        return kept_from

    def read_id(self) -> str:
        """Return the location's id, which its first driver set.

        Raises LogFormatError when it is missing or damaged.
        """
        return self._id.read()

    def _recover(self) -> tuple[RecoveryPlan, BatchLives, _Stale]:
        offset_ids, commit_ids = self.offsets.batch_ids(), self.commits.batch_ids()
        kept_from = self._kept_from(offset_ids[-1]) if offset_ids else 0
        kept = [i for i in offset_ids if i >= kept_from]
        done = [i for i in commit_ids if i >= kept_from]
        if done:
            self.commits.get(done[-1])  # refuses it if it is damaged, or of a newer version
        plan = plan_recovery(kept, done)
        if plan.error is not None:
            usual = f"restore the missing files from a backup, or {START_ELSEWHERE}"
            lost = self.offsets if plan.folder == "offsets" else self.commits
            raise LogGapError(
                plan.error,
                operation="recover",
                path=self.url,
                hint=lost.hint_for_damage(plan.missing[0].start, usual),
            )
        stale = (offset_ids[: -len(kept) or None], commit_ids[: len(commit_ids) - len(done)])
        return plan, BatchLives(plan, done, kept_from), stale

    def _remove_stale(self, stale: _Stale, kept_from: int) -> None:
        """Remove entries left by a purge, and by drivers that slept through one."""
        planned, committed = stale
        if gaps := find_gaps([*planned, kept_from]):
            left = [i for i in planned if i < gaps[-1].start]
            _log.warning(
                "Another driver wrote entries below batch %d, the oldest that this location keeps, "
                "after they had been purged; it was fenced and the entries are ignored: removing "
                "%s (%s)",
                kept_from,
                describe_files("offsets", [range(i, i + 1) for i in left]),
                ", ".join(sorted({f"run {self._run_of(i)}" for i in left})),
            )
        for batch_ids, log in ((planned, self.offsets), (committed, self.commits)):
            try:
                log.delete(batch_ids)
            except StorageError as error:
                _log.warning(
                    "Ignored log entries cannot be removed now and stay until the next start: %s",
                    error,
                )

    def _kept_from(self, batch_id: int) -> int:
        """Return the ``kept_from`` of an entry; 0 if the entry is gone."""
        entry = self.offsets.get(batch_id)
        text = "0" if entry is None else entry.conf.get(_KEPT_FROM, "0")
        if (kept_from := parse_batch_id(text)) is None:
            raise LogFormatError(
                f"{_KEPT_FROM} is {text[:40]!r}, which is not a batch id",
                operation="read offset log",
                path=self.storage.uri(f"offsets/{batch_id}"),
                hint="restore the file from a backup",
            )
        return kept_from

    def _run_of(self, batch_id: int) -> str | None:
        try:
            entry = self.offsets.get(batch_id)
        except LogFormatError:
            return None
        return None if entry is None else entry.conf.get(RUN)

    # -- other drivers --

    def _check_sole(self) -> None:
        """Raise ConcurrentDriverError, and be fenced, if another driver planned a later batch."""
        started_s = time.monotonic()
        offset_ids = self.offsets.batch_ids()
        with self._mutex:
            fenced = self._driving().is_fenced(offset_ids)
        if fenced:
            self._lose(
                ConcurrentDriverError(
                    f"another driver has taken over this checkpoint location: it planned batch"
                    f" {offset_ids[-1]}",
                    operation="plan batch",
                    path=self.url,
                    ids={"run": self._run},
                    hint="this driver ends, and the other one runs its batches; find out why two"
                    " were running, and give each a checkpoint location of its own",
                ),
                offset_ids,
            )
        self._listed_s = started_s

    def _lose(self, error: ConcurrentDriverError, offset_ids: Sequence[int] = ()) -> NoReturn:
        """Become fenced: delete the entries that this driver must not keep, and raise."""
        with self._mutex:
            lives = self._driving()
            self._fenced = error
        try:
            # Only below the batches that the other driver keeps: it may have adopted later entries
            # when it started.
            kept_from = self._kept_from(offset_ids[-1]) if offset_ids else 0
            if lives.next_id < kept_from and self._run_of(lives.next_id) == self._run:
                self.offsets.delete([lives.next_id])
            self.commits.delete([i for i in lives.committed() if i < kept_from])
        except (LogFormatError, StorageError) as left:
            _log.warning(
                "This driver's entries cannot be removed; the next driver removes them: %s", left
            )
        raise error

    def _enter(self, batch_id: int, state: BatchState) -> None:
        with self._mutex:
            self._driving().enter(batch_id, state)

    def _driving(self) -> BatchLives:
        if self._fenced is not None:
            raise self._fenced
        locked = self._driver_lock is None or self._driver_lock.held
        if self._lives is None or not locked:
            raise CheckpointError(
                "this process is not the driver of the checkpoint location",
                operation="drive batches",
                path=self.url,
                hint="call acquire() first, in the same process",
            )
        return self._lives
