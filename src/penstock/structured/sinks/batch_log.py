"""Which batches are published, and by which files: the log of a Parquet sink.

    <root>/_published/<location>/<output>/0-<number>    a batch: the log's entries are numbered
    <root>/_published/<location>/<output>/1-<cell>      the 64 entries of a cell
    <root>/_published/<location>/<output>/2-<cell>      the 4,096 entries of a cell
    <root>/_data/<location>/<output>/<batch>/<attempt>/ the files of an attempt at a batch

Numbers have 20 digits. An entry is a log file of Spark's form: ``v1``, then for each batch a line
``{"batch":42,"attempt":"9f..","files":["part-00000-..parquet"],"plan":"17953..","of":"5f1c/out"}``.

Invariants:

1. A batch is published by the exclusive create of the next number, after its files are durable. An
   entry never changes. So the next name is the lock: an attempt that slept finds the number that
   it saw taken, whatever batch took it, and of all attempts at a batch one counts.
2. Batches of an output are published in ascending order, and only the newest may run again: an
   attempt at an older one is refused. Ids may be left out, numbers are not.
3. A cell is folded when an entry after it is published, so it is complete. The folded entry is
   durable before those that it holds are deleted.
4. A name is free again after that. So what a folded entry covers counts nowhere else: readers leave
   it out, and who published it takes it back.
5. Files are deleted only if another attempt at their batch is published.
6. A batch that is published has not failed: what cannot be folded or deleted stays, with a warning.

A batch costs two listings of at most about 130 names and one per 4,096 batches, and an entry is
copied twice in its life, however many batches there are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.checkpoint.log_format import (
    MalformedLogError,
    decode_log,
    dump_json,
    encode_log,
    parse_fields,
)
from penstock.errors import (
    AlreadyExistsError,
    ConfigError,
    LogFormatError,
    NotFoundError,
    PenstockError,
    SinkError,
)
from penstock.model import check_name
from penstock.storage import Storage

PUBLISHED = "_published"
_DATA = "_data"
_VERSION = 1
_CELL = 64
_LEVELS = 2
_TRIES = 100
_NAME = re.compile(rf"([0-{_LEVELS}])-([0-9]{{20}})")
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Published:
    """A batch, and what it consists of."""

    batch_id: int
    attempt: str
    files: Sequence[str]
    """Their names, in the folder of the attempt."""
    plan: str = ""
    """That of the batch (OutputBatch)."""
    of: str = ""
    """Location and output: the log adds them."""


class _Entry(NamedTuple):
    level: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.level}-{self.number:020}"

    def numbers(self) -> range:
        size = _CELL**self.level
        return range(self.number * size, (self.number + 1) * size)

    def cell(self, level: int) -> _Entry:
        """Return the entry of a level that this one is folded into."""
        return _Entry(level, self.number // _CELL ** (level - self.level))


class BatchLog:
    """The log of one output. Not thread-safe; any number may be of one output.

    Args:
        storage: the sink's root.
        location_id: of the query's, or program's, checkpoint location.
        output: its name.

    Raises:
        ConfigError: one of these cannot be in a path.
    """

    def __init__(self, storage: Storage, location_id: str, output: str) -> None:
        name = f"{check_name('location', location_id)}/{check_name('output', output)}"
        self._storage = storage
        self._folder = f"{PUBLISHED}/{name}"
        self._data = f"{_DATA}/{name}"
        self._of = name
        self._ids = {"location": location_id, "output": output}
        self._newest = Published(-1, "", [])
        self._next = _Entry(0, 0)

    def attempt_folder(self, batch_id: int, attempt: str) -> str:
        """Return where an attempt writes its files: a name of its own."""
        return f"{self._batch_folder(batch_id)}/{attempt}"

    def has(self, batch_id: int) -> bool:
        """Return whether a batch is published; to be called before an attempt at it begins.

        Raises:
            SinkError: a later one is, so this one may not run any more.
            ConfigError: the log is another output's, whose name differs by case.
            LogFormatError: the newest entry is damaged.
            StorageError: the log cannot be read.
        """
        self._newest, self._next = self._retried(self._end)
        if self._newest.of not in ("", self._of):
            raise self._of_another(self._newest.of)
        if self._newest.batch_id > batch_id:
            raise self._overtaken(batch_id, self._newest.batch_id)
        return self._newest.batch_id == batch_id

    @property
    def newest(self) -> Published:
        """The newest batch that ``has`` saw, with the id -1 for none."""
        return self._newest

    def publish(self, made: Published) -> bool:
        """Publish a batch whose files are durable; return whether these files count.

        If another attempt at the batch is published, the files are deleted.

        Raises:
            SinkError: another batch was published since ``has`` was called.
            StorageError: it is not known whether the batch is published.
        """
        entry = self._next
        try:
            self._storage.create(self._path(entry), self._encode([made]))
        except AlreadyExistsError:
            return self._counts(made)  # its own answer may have been lost, and asked for again
        if entry not in self._entries():  # folded: before it was published, or since
            self._storage.delete(self._path(entry))
            return self._counts(made)
        if entry.number == entry.cell(1).numbers()[0]:
            try:
                self._fold_before(entry)
            except PenstockError:
                _log.warning(
                    "Batch %d is published. The log of the sink cannot be shortened; that is tried "
                    "again %d batches later",
                    made.batch_id,
                    _CELL,
                    exc_info=True,
                )
        return True

    def _counts(self, made: Published) -> bool:
        """Return whether this attempt is the one that is published; delete its files if not."""
        held = self._retried(self._at_next)
        published = {batch.batch_id: batch for batch in held}
        if (found := published.get(made.batch_id)) and found.attempt == made.attempt:
            return True
        self._delete_attempt(made)
        if found is None:
            raise self._overtaken(made.batch_id, max(published, default=-1))
        self._newest = found
        return False

    def _at_next(self, entries: Sequence[_Entry]) -> list[Published]:
        """Return what the name holds that this attempt would have taken, or its cell."""
        number = self._next.number
        return [b for entry in entries if number in entry.numbers() for b in self._read(entry)]

    def _end(self, entries: Sequence[_Entry]) -> tuple[Published, _Entry]:
        """Return the newest batch, and the next entry."""
        if not entries:
            return Published(-1, "", []), _Entry(0, 0)
        newest = max(entries, key=lambda entry: entry.numbers()[0])
        return self._read(newest)[-1], _Entry(0, newest.numbers()[-1] + 1)

    def _retried(self, read: Callable[[Sequence[_Entry]], _T]) -> _T:
        """Return what a function reads of the entries that count; one may be folded meanwhile."""
        for _ in range(_TRIES):
            try:
                return read(self._entries())
            except NotFoundError:
                continue
        raise SinkError(
            f"the sink's log changed while it was read, {_TRIES} times in a row",
            operation="read sink",
            path=self._storage.uri(self._folder),
            ids=self._ids,
            hint="read it again; if this repeats, its storage lists files that do not exist",
        )

    def _fold_before(self, newest: _Entry) -> None:
        """Fold the cells before an entry that is published, and delete what does not count.

        A kill at any step leaves what the next call completes.
        """
        for level in range(1, _LEVELS + 1):
            inner = [entry for entry in self._entries() if entry.level == level - 1]
            for cell in sorted({entry.cell(level) for entry in inner}):
                if cell.numbers()[-1] < newest.number:
                    self._fold(cell, [entry for entry in inner if entry.cell(level) == cell])
        entries = self._entries(covered=True)
        covered = {*entries}.difference(_uncovered(entries))
        self._storage.delete_all([self._path(entry) for entry in sorted(covered)])

    def read(self) -> list[Published]:
        """Return all published batches in order.

        Raises:
            LogFormatError: an entry is damaged.
            StorageError: one cannot be read.
        """
        return self._retried(self._read_all)

    def _read_all(self, entries: Sequence[_Entry]) -> list[Published]:
        found = [batch for entry in entries for batch in self._read(entry)]
        folded = {entry for entry in entries if entry.level}
        if folded != {entry for entry in self._entries() if entry.level}:
            raise NotFoundError("entries were folded", operation="read sink", ids=self._ids)
        return sorted(found, key=lambda batch: batch.batch_id)

    def paths(self, batches: Iterable[Published]) -> list[str]:
        """Return the paths of the files of batches."""
        return [
            f"{self.attempt_folder(batch.batch_id, batch.attempt)}/{name}"
            for batch in batches
            for name in batch.files
        ]

    def _fold(self, cell: _Entry, inner: Sequence[_Entry]) -> None:
        try:
            batches = [batch for entry in inner for batch in self._read(entry)]
            self._storage.create(self._path(cell), self._encode(batches))
        except (AlreadyExistsError, NotFoundError):
            return  # another driver folds it, or has
        except LogFormatError as error:
            _log.warning("Entries of the sink's log cannot be folded into one: %s", error)
            return
        if cell.level == 1 and cell in self._entries():  # else its entries may be a zombie's
            for batch in batches:
                self._delete_other_attempts(batch)

    def _entries(self, *, covered: bool = False) -> list[_Entry]:
        """Return the entries that count; with ``covered`` also the others."""
        matches = map(_NAME.fullmatch, self._storage.names(self._folder))
        entries = sorted(_Entry(int(m[1]), int(m[2])) for m in matches if m)
        return entries if covered else _uncovered(entries)

    def _read(self, entry: _Entry) -> list[Published]:
        path = self._path(entry)
        try:
            lines = decode_log(self._storage.read(path), _VERSION)
            if not lines:
                raise ValueError("it has no batch")
            return [_parse(line) for line in lines]
        except (MalformedLogError, KeyError, TypeError, ValueError) as error:
            raise LogFormatError(
                f"an entry of the sink's log cannot be read: {error}",
                operation="read sink",
                path=self._storage.uri(path),
                hint="restore the file from a backup; the files of its batches are unharmed",
            ) from error

    def _delete_attempt(self, made: Published) -> None:
        self._storage.delete_all(
            self._storage.find(self.attempt_folder(made.batch_id, made.attempt))
        )

    def _delete_other_attempts(self, batch: Published) -> None:
        own = f"{self.attempt_folder(batch.batch_id, batch.attempt)}/"
        found = self._storage.find(self._batch_folder(batch.batch_id))
        self._storage.delete_all([path for path in found if not path.startswith(own)])

    def _batch_folder(self, batch_id: int) -> str:
        return f"{self._data}/{batch_id:020}"

    def _path(self, entry: _Entry) -> str:
        return f"{self._folder}/{entry.name}"

    def _encode(self, batches: Iterable[Published]) -> bytes:
        return encode_log(_VERSION, [dump_json(_fields(batch, self._of)) for batch in batches])

    def _of_another(self, name: str) -> ConfigError:
        return ConfigError(
            f"the log of {name} is taken for that of {self._of}: the storage does not tell upper "
            "from lower case",
            operation="write batch",
            path=self._storage.uri(self._folder),
            ids=self._ids,
            hint="give the outputs names that differ by more than case",
        )

    def _overtaken(self, batch_id: int, newest_id: int) -> SinkError:
        return SinkError(
            f"batch {batch_id} is to be written, but batch {newest_id} is published already",
            operation="write batch",
            path=self._storage.uri(self._folder),
            ids=self._ids,
            hint="another run of the query has overtaken this one, or its checkpoint location was "
            "restored from an older copy; only one of them may write here",
        )


def _uncovered(entries: Sequence[_Entry]) -> list[_Entry]:
    held = {*entries}
    return [
        entry
        for entry in entries
        if not any(entry.cell(level) in held for level in range(entry.level + 1, _LEVELS + 1))
    ]


def _fields(batch: Published, of: str) -> dict[str, object]:
    return {
        "batch": batch.batch_id,
        "attempt": batch.attempt,
        "files": list(batch.files),
        "plan": batch.plan,
        "of": batch.of or of,
    }


def _parse(line: str) -> Published:
    fields = parse_fields(line)
    return Published(
        int(fields["batch"]),
        str(fields["attempt"]),
        [*map(str, fields["files"])],
        str(fields["plan"]),
        str(fields["of"]),
    )
