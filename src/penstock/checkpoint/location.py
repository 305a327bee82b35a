"""A checkpoint location: the protocol that makes batches recoverable.

    metadata            {"id":"<uuid>"}: the program's identity over all its runs
    offsets/N           what batch N is going to process, durable before it runs
    commits/N           batch N is done
    sources/<i>/        what source i keeps for itself
    driver.lock         who drives (local file systems; see driver_lock)

    acquire -> run again what recovery says -> (plan N -> process -> commit N -> retire)*

Invariants:

1. offsets/N is created before anything of batch N happens and never changes, so batch N processes
   the same ranges however often it runs.
2. commits/N is created after all that batch N did is durable.
3. ``retire`` keeps every batch that is not committed and the newest one that is, and removes
   offsets/N before commits/N: were it the other way round, a crash in between would make a batch
   that is done look as if it had to run again.
4. plan and commit each cost one durable file, however many batches were done before.

Source: Spark's MicroBatchExecution, StreamMetadata, ResolveCheckpointLocation.
"""

from __future__ import annotations

import os
import threading
import uuid
from contextlib import suppress
from types import TracebackType

from penstock.checkpoint.checksum import ChecksummedFiles
from penstock.checkpoint.commit_log import CommitLog, CommitMetadata
from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.ledger import BatchLedger
from penstock.checkpoint.local_files import local_path
from penstock.checkpoint.log_format import MalformedLogError, dump_json, parse_fields
from penstock.checkpoint.offset_log import OffsetLog, OffsetSeq
from penstock.checkpoint.recovery import RecoveryPlan, plan_recovery
from penstock.errors import (
    AlreadyExistsError,
    CheckpointError,
    ConfigError,
    LogFormatError,
    LogGapError,
    NotFoundError,
)
from penstock.storage import Storage, open_storage

__all__ = ["CheckpointLocation"]

_METADATA = "metadata"


class CheckpointLocation:
    """The checkpoint location at a path or URL, or in an open storage.

    Reading needs nothing more, so operator tools can look at a location while its driver runs. The
    driver itself calls ``acquire`` first (or uses a ``with`` block), and may then call ``plan``,
    ``commit`` and ``retire`` from any thread.

    Raises ConfigError when the place cannot be used (see open_storage).
    """

    def __init__(self, place: str | os.PathLike[str] | Storage) -> None:
        self.storage = place if isinstance(place, Storage) else open_storage(place)
        self.offsets = OffsetLog(self.storage)
        self.commits = CommitLog(self.storage)
        self._files = ChecksummedFiles(self.storage)
        lock_path = local_path(self.storage, LOCK_NAME)
        self._driver_lock = DriverLock(lock_path) if lock_path is not None else None
        self._mutex = threading.Lock()
        self._retiring = threading.Lock()
        self._ledger: BatchLedger | None = None

    @property
    def url(self) -> str:
        """The location as a URL."""
        return self.storage.url

    def acquire(self) -> RecoveryPlan:
        """Become the driver of this location; return what has to run again, and what comes next.

        The first driver gives the location its id. Raises ConcurrentDriverError when another driver
        holds it (see driver_lock for stores without locks), and as ``recover`` and ``read_id``.
        """
        if self._driver_lock is not None:
            self._driver_lock.acquire()
        try:
            for log in (self.offsets, self.commits):
                log.sweep()
            plan, ledger = self._recover()
            self._ensure_id(fresh=plan.next_batch_id == 0)
        except BaseException:
            self.release()
            raise
        self._ledger = ledger
        return plan

    def release(self) -> None:
        """Stop being the driver; does nothing when this is not."""
        self._ledger = None
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
        """Decide, from a listing of both logs, what has to run again and what comes next.

        Raises LogGapError, naming the files, when some are missing (see recovery).
        """
        return self._recover()[0]

    def uncommitted(self) -> tuple[int, ...]:
        """Return the batches with offsets and no commit, oldest first; lists both logs."""
        return self.recover().rerun

    def next_batch_id(self) -> int:
        """Return the id after the newest planned batch; lists both logs."""
        return self.recover().next_batch_id

    def plan(self, batch_id: int, offsets: OffsetSeq) -> None:
        """Make durable what a batch is going to process; it may run when this returns.

        After a StorageError the batch may or may not be planned: repeat the call with the same
        offsets. Raises ConcurrentDriverError when another driver has planned this batch with other
        offsets, CheckpointError when a batch is left out or this is not the driver, StorageError
        when the file cannot be written.
        """
        with self._mutex:
            self._driving().check_plan(batch_id)
        self.offsets.add(batch_id, offsets)
        with self._mutex:
            self._driving().planned(batch_id)

    def commit(self, batch_id: int, next_batch_watermark_ms: int = 0) -> None:
        """Make durable that a batch is done; call it when all that the batch did is durable.

        May be repeated. Raises CheckpointError when the batch was not planned or this is not the
        driver, ConcurrentDriverError when it was committed with another watermark, StorageError
        when the file cannot be written.
        """
        with self._mutex:
            self._driving().check_commit(batch_id)
        self.commits.add(batch_id, CommitMetadata(next_batch_watermark_ms))
        with self._mutex:
            self._driving().committed(batch_id)

    def retire(self, min_batches_to_retain: int = 100) -> int:
        """Delete the logs of old batches; return the first batch id that is kept.

        Keeps ``min_batches_to_retain`` batches besides the newest planned one, every batch that is
        not committed with the one before it, and the newest that is. Raises ConfigError for a
        number below 1, CheckpointError when this is not the driver, StorageError when a file cannot
        be deleted (the next call goes on from there).
        """
        if min_batches_to_retain < 1:
            raise ConfigError(
                f"min_batches_to_retain is {min_batches_to_retain}",
                operation="retire batches",
                path=self.url,
                hint="keep 1 batch or more; Spark keeps 100",
            )
        with self._retiring:
            with self._mutex:
                keep_from = self._driving().keep_from(min_batches_to_retain)
            self.offsets.purge(keep_from)
            self.commits.purge(keep_from)
        return keep_from

    def source_folder(self, index: int) -> str:
        """Return the folder, within the storage, in which source ``index`` keeps what it needs."""
        return f"sources/{index}"

    def read_id(self) -> str:
        """Return the location's id, which its first driver gave it.

        Raises LogFormatError when it is missing or damaged.
        """
        try:
            return _decode_id(self._files.read(_METADATA))
        except NotFoundError as error:
            raise self._bad_metadata(
                "the file is missing",
                "restore it from a backup; only a location that no driver has used yet has none",
            ) from error
        except MalformedLogError as error:
            raise self._bad_metadata(str(error), error.hint) from error.__cause__

    def _recover(self) -> tuple[RecoveryPlan, BatchLedger]:
        commit_ids = self.commits.batch_ids()
        plan = plan_recovery(self.offsets.batch_ids(), commit_ids)
        if plan.error is not None:
            usual = (
                "restore the missing files from a backup, or start with a new checkpoint location"
            )
            lost = self.offsets if plan.folder == "offsets" else self.commits
            raise LogGapError(
                plan.error,
                operation="recover",
                path=self.url,
                hint=lost.hint_for_damage(plan.missing[0].start, usual),
            )
        return plan, BatchLedger(plan, commit_ids)

    def _ensure_id(self, *, fresh: bool) -> None:
        """Create the metadata file of a location that has no batches yet, and read it."""
        if fresh and not self.storage.exists(_METADATA):
            # On a store without locks another driver may be quicker; its id is as good.
            with suppress(AlreadyExistsError):
                self._files.create(_METADATA, _encode_id(str(uuid.uuid4())))
        self.read_id()

    def _driving(self) -> BatchLedger:
        locked = self._driver_lock is None or self._driver_lock.held
        if self._ledger is None or not locked:
            raise CheckpointError(
                "this process does not drive the checkpoint location",
                operation="drive batches",
                path=self.url,
                hint="call acquire() first, in the same process",
            )
        return self._ledger

    def _bad_metadata(self, message: str, hint: str) -> LogFormatError:
        return LogFormatError(
            message, operation="read metadata", path=self.storage.uri(_METADATA), hint=hint
        )


def _encode_id(location_id: str) -> bytes:
    return dump_json({"id": location_id}).encode()


def _decode_id(data: bytes) -> str:
    try:
        location_id = str(uuid.UUID(parse_fields(data.decode())["id"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedLogError(f"the file holds no id: {data!r}") from error
    if _encode_id(location_id) != data:
        raise MalformedLogError(f"the file is not in the form that Spark writes: {data!r}")
    return location_id
