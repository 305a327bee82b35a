"""A log of batches: one immutable file per batch id in a folder of the checkpoint location.

Invariants:

1. A batch id is written once. The exclusive create of its file decides between drivers, so the
   offset log fences a second driver also without a lock (see driver_lock).
2. When ``add`` returns, the entry survives a power cut.
3. Nothing damaged is skipped: an error names it and its fix. A file equals Spark's output, byte for
   byte, or it is damaged.
4. ``purge`` deletes entries that no driver reads any more (penstock.checkpoint.batch_life,
   invariant 5), so a crash may leave any of them.

Source: Spark's HDFSMetadataLog.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

from penstock.checkpoint.batch_ids import MAX_BATCH_ID, describe_files, find_gaps, parse_batch_id
from penstock.checkpoint.checksum import ChecksummedFiles, sidecar_name
from penstock.checkpoint.log_format import MalformedLogError, encode_log
from penstock.checkpoint.rollback import START_ELSEWHERE
from penstock.errors import (
    AlreadyExistsError,
    ConcurrentDriverError,
    ConfigError,
    LogFormatError,
    LogGapError,
    NotFoundError,
)
from penstock.storage import Storage

T = TypeVar("T")


class MetadataLog(ABC, Generic[T]):
    """The entries in ``folder``, by batch id. Methods always list and read; nothing is cached.

    Files whose names are not batch ids (``5.tmp``, ``05``, ``-1``) are ignored; ``orphans`` returns
    them. One instance may be used by several threads as long as only one of them purges.
    """

    version: ClassVar[int] = 1
    """The format version that is written, and the newest that is read."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._files = ChecksummedFiles(storage)
        self._folder = folder
        self._first_kept: int | None = None
        """All ids below this one are purged; None until the first purge has listed."""

    @abstractmethod
    def encode(self, entry: T) -> Sequence[str]:
        """Return the lines of an entry, without the version line."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """Return the entry in a file; raises MalformedLogError with the reason."""

    def hint_for_damage(self, batch_id: int, usual: str) -> str:
        """Return the hint for an entry that is missing or cannot be read."""
        return usual

    def add(self, batch_id: int, entry: T) -> bool:
        """Write an entry if its batch id is not taken yet; return whether it was written.

        Adding the same entry again changes nothing. So after a StorageError, which leaves open
        whether the file exists, the same call may be repeated.

        Raises ConcurrentDriverError if the file exists with another entry, LogFormatError if the
        existing file is damaged, and StorageError if it cannot be written.
        """
        data = encode_log(self.version, self.encode(entry))
        try:
            self._files.create(self._path(batch_id), data)
        except AlreadyExistsError as error:
            if self.get(batch_id) != entry:
                raise self._concurrent(batch_id) from error
            # Its creator may have died before the name was durable; a listing makes it durable.
            self._storage.list(self._folder)
            return False
        return True

    def get(self, batch_id: int) -> T | None:
        """Return the entry of a batch id, or None if it does not exist.

        Raises LogFormatError when its file is torn, altered, or of a newer version.
        """
        path = self._path(batch_id)
        try:
            return self.parse(self._files.read(path))
        except NotFoundError:
            return None
        except MalformedLogError as error:
            raise LogFormatError(
                str(error),
                operation="read log file",
                path=self._storage.uri(path),
                ids={"batch_id": batch_id},
                hint=self.hint_for_damage(batch_id, error.hint),
            ) from error.__cause__

    def require(self, batch_id: int) -> T:
        """Return the entry of a batch id. Raises LogGapError if it is missing, otherwise as get."""
        entry = self.get(batch_id)
        if entry is None:
            raise self._missing([range(batch_id, batch_id + 1)])
        return entry

    def batch_ids(self) -> tuple[int, ...]:
        """Return the existing ids, ascending."""
        ids = map(parse_batch_id, self._storage.names(self._folder))
        return tuple(sorted(batch_id for batch_id in ids if batch_id is not None))

    def latest(self) -> tuple[int, T] | None:
        """Return the newest batch id with its entry, or None when the log is empty.

        Raises as get: a damaged newest entry is not replaced by an older one.
        """
        ids = self.batch_ids()
        return (ids[-1], self.require(ids[-1])) if ids else None

    def validate(self) -> None:
        """Raise LogGapError, which names the files, if ids between two others are missing."""
        gaps = find_gaps(self.batch_ids())
        if gaps:
            raise self._missing(gaps)

    def sweep(self) -> None:
        """Remove temporary files of entries that killed drivers were writing."""
        self._storage.sweep(self._folder)

    def orphans(self) -> tuple[str, ...]:
        """Return the names in the folder that are neither entries nor checksums of entries."""
        ids = self.batch_ids()
        expected = {name for i in ids for name in (str(i), sidecar_name(str(i)))}
        return tuple(
            entry.name
            for entry in self._storage.list(self._folder)
            if entry.is_folder or entry.name not in expected
        )

    def purge(self, keep_from: int) -> None:
        """Delete the entries with ids below ``keep_from``.

        Lists the folder the first time only, so the cost of a purge after each batch does not
        depend on the number of kept entries.
        """
        if self._first_kept is None:
            doomed: Sequence[int] = [i for i in self.batch_ids() if i < keep_from]
        else:
            doomed = range(self._first_kept, keep_from)
        self.delete(doomed)
        self._first_kept = max(keep_from, self._first_kept or 0)

    def delete(self, batch_ids: Iterable[int]) -> None:
        """Delete the entries of ids if they exist; raises as Storage.delete_all."""
        self._files.delete_all([self._path(batch_id) for batch_id in batch_ids])

    def _path(self, batch_id: int) -> str:
        if not 0 <= batch_id <= MAX_BATCH_ID:
            raise ConfigError(
                f"batch id {batch_id} is out of range",
                operation="name log file",
                path=self._folder,
                hint="batch ids count from 0",
            )
        return f"{self._folder}/{batch_id}"

    def parse(self, data: bytes) -> T:
        """Return the entry in a file's bytes.

        Raises MalformedLogError when they are not just what Spark would write for it.
        """
        entry = self.decode(data)
        if encode_log(self.version, self.encode(entry)) != data:
            raise MalformedLogError(
                "Log file was malformed: Spark writes this entry in another form"
            )
        return entry

    def _missing(self, gaps: Sequence[range]) -> LogGapError:
        names = describe_files(self._folder, gaps)
        usual = f"restore {names} from a backup, or {START_ELSEWHERE}"
        return LogGapError(
            f"batches are missing from the log: {names} not found",
            operation="read log",
            path=self._storage.uri(self._folder),
            hint=self.hint_for_damage(gaps[0].start, usual),
        )

    def _concurrent(self, batch_id: int) -> ConcurrentDriverError:
        path = self._storage.uri(self._path(batch_id))
        return ConcurrentDriverError(
            f"batch {batch_id} is already in the log, with different content: multiple streaming "
            f"jobs"
            " use this checkpoint location",
            operation="add to log",
            path=path,
            ids={"batch_id": batch_id},
            hint=f"another driver wrote {path}; stop one of the two, or give each a checkpoint"
            " location of its own",
        )
