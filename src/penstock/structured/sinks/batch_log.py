"""Which batches are published, and by which files: the log of a Parquet sink.

    <root>/_published/<location>/<output>/0-<batch>     a batch
    <root>/_published/<location>/<output>/1-<cell>      the 64 batches of a cell
    <root>/_published/<location>/<output>/2-<cell>      the 4,096 batches of a cell
    <root>/_data/<location>/<output>/<batch>/<attempt>/ the files of an attempt at a batch

Numbers have 20 digits. An entry is a log file of Spark's form: ``v1``, then for each batch a line
``{"batch":42,"attempt":"9f..","files":["part-00000-..parquet"],"plan":"17953.."}``.

Invariants:

1. A batch is published by the exclusive create of its entry, after its files are durable. An entry
   never changes. So of all attempts at a batch, however many run at once or wake later, one counts.
2. Batches of an output are published in ascending order, and only the newest may run again: an
   attempt at an older one is refused. Ids that an output leaves out (a query that was taken back
   goes on behind them) get entries without a batch first, so an attempt that sleeps has no name.
3. A cell is folded when a batch after it is published, so it is complete. The folded entry is
   durable before those that it holds are deleted.
4. A name is free again after that. So what a folded entry covers counts nowhere else: readers leave
   it out, and who published it takes it back.
5. Files are deleted only if another attempt at their batch is published.

A batch costs two listings of at most about 130 names and one per 4,096 batches, and an entry is
copied twice in its life, however many batches there are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from penstock.checkpoint.log_format import (
    MalformedLogError,
    decode_log,
    dump_json,
    encode_log,
    parse_fields,
)
from penstock.errors import AlreadyExistsError, LogFormatError, NotFoundError, SinkError
from penstock.model import check_name
from penstock.storage import Storage

__all__ = ["PUBLISHED", "BatchLog", "Published"]

PUBLISHED = "_published"
_DATA = "_data"
_VERSION = 1
_CELL = 64
_LEVELS = 2
_TRIES = 100
_NAME = re.compile(rf"([0-{_LEVELS}])-([0-9]{{20}})")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """A batch, and what it consists of."""

    batch_id: int
    attempt: str
    files: Sequence[str]
    """Their names, in the folder of the attempt."""
    plan: str = ""
    """That of the batch (OutputBatch)."""


class _Entry(NamedTuple):
    level: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.level}-{self.number:020}"

    def batches(self) -> range:
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
        self._ids = {"location": location_id, "output": output}
        self._newest_id = -1

    def attempt_folder(self, batch_id: int, attempt: str) -> str:
        """Return where an attempt writes its files: a name of its own."""
        return f"{self._batch_folder(batch_id)}/{attempt}"

    def has(self, batch_id: int) -> bool:
        """Return whether a batch is published.

        Raises:
            SinkError: a later one is, so this one may not run any more.
            StorageError: the log cannot be listed.
        """
        newest_id = self._newest_id = _newest_id(self._entries())
        if newest_id > batch_id:
            raise self._overtaken(batch_id, newest_id)
        return newest_id == batch_id

    def newest(self) -> tuple[int, str]:
        """Return the newest batch that ``has`` saw, -1 for none, and its plan.

        The plan is empty if the name was left out, or is gone: a later batch was published since.

        Raises:
            LogFormatError, StorageError: the entry cannot be read.
        """
        batches: list[Published] = []
        if self._newest_id >= 0:
            with suppress(NotFoundError):
                batches = self._read(_Entry(0, self._newest_id))
        return self._newest_id, batches[-1].plan if batches else ""

    def publish(self, made: Published) -> bool:
        """Publish a batch whose files are durable; return whether these files count.

        If another attempt at the batch is published, the files are deleted.

        Raises:
            SinkError: later batches are published, and this one is not.
            StorageError: it is not known whether the batch is published.
        """
        entry = _Entry(0, made.batch_id)
        self._leave_out(entry)
        try:
            self._storage.create(self._path(entry), _encode([made]))
        except AlreadyExistsError:
            return self._counts(made)  # its own answer may have been lost, and asked for again
        entries = self._entries()
        if entry not in entries:  # folded: before it was published, or since
            self._storage.delete(self._path(entry))
            return self._counts(made)
        if any(other.cell(1) != entry.cell(1) for other in entries if not other.level):
            self._fold_before(made.batch_id)
        return True

    def _leave_out(self, entry: _Entry) -> None:
        """Take the names between the newest batch that ``has`` saw and this one.

        Those of its cell are enough: earlier cells are folded.
        """
        if self._newest_id >= 0:
            first = max(self._newest_id + 1, entry.cell(1).batches()[0])
            for number in range(first, entry.number):
                with suppress(AlreadyExistsError):
                    self._storage.create(self._path(_Entry(0, number)), _encode([]))

    def _counts(self, made: Published) -> bool:
        """Return whether this attempt is the one that is published; delete its files if not."""
        published = {batch.batch_id: batch for batch in self.read()}
        if published.get(made.batch_id) == made:
            return True
        self._delete_attempt(made)
        if made.batch_id not in published:
            raise self._overtaken(made.batch_id, max(published, default=-1))
        return False

    def _fold_before(self, newest_id: int) -> None:
        """Fold the cells before a batch that is published, and delete what does not count.

        A kill at any step leaves what the next call completes.
        """
        for level in range(1, _LEVELS + 1):
            inner = [entry for entry in self._entries() if entry.level == level - 1]
            for cell in sorted({entry.cell(level) for entry in inner}):
                if cell.batches()[-1] < newest_id:
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
        for _ in range(_TRIES):
            entries = self._entries()
            try:
                found = [batch for entry in entries for batch in self._read(entry)]
            except NotFoundError:
                continue  # folded meanwhile
            folded = {entry for entry in entries if entry.level}
            if folded == {entry for entry in self._entries() if entry.level}:
                return sorted(found, key=lambda batch: batch.batch_id)
        raise SinkError(
            f"the sink's log changed while it was read, {_TRIES} times in a row",
            operation="read sink",
            path=self._storage.uri(self._folder),
            ids=self._ids,
            hint="read it again; if this repeats, its storage lists files that do not exist",
        )

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
            self._storage.create(self._path(cell), _encode(batches))
        except (AlreadyExistsError, NotFoundError):
            return  # another driver folds it, or has
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

    def _overtaken(self, batch_id: int, newest_id: int) -> SinkError:
        return SinkError(
            f"batch {batch_id} is to be written, but batch {newest_id} is published already",
            operation="write batch",
            path=self._storage.uri(self._folder),
            ids=self._ids,
            hint="another run of the query has overtaken this one, or its checkpoint location was "
            "restored from an older copy; only one of them may write here",
        )


def _newest_id(entries: Iterable[_Entry]) -> int:
    """Return the newest batch, -1 without one; it is in no folded entry."""
    return max((entry.number for entry in entries if not entry.level), default=-1)


def _uncovered(entries: Sequence[_Entry]) -> list[_Entry]:
    held = {*entries}
    return [
        entry
        for entry in entries
        if not any(entry.cell(level) in held for level in range(entry.level + 1, _LEVELS + 1))
    ]


def _encode(batches: Iterable[Published]) -> bytes:
    lines = [
        dump_json(
            {"batch": b.batch_id, "attempt": b.attempt, "files": list(b.files), "plan": b.plan}
        )
        for b in batches
    ]
    return encode_log(_VERSION, lines)


def _parse(line: str) -> Published:
    fields = parse_fields(line)
    return Published(
        int(fields["batch"]),
        str(fields["attempt"]),
        [*map(str, fields["files"])],
        str(fields.get("plan", "")),
    )
