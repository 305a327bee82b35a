"""Dead letters: records that a program's parser refused, kept until they are replayed.

The dead letters of stream ``clicks`` are Parquet files in the folder ``clicks-dead`` of the
journal, beside the stream. A Kafka input has such a folder, too. It is not a stream.

    clicks-dead/<writer>.<start>-<end>.<count>-<16 hex>.parquet   the letters of one cell
    clicks-dead/_replayed/<name of a file>.json                   mark: its letters are replayed

Invariants:

1. A file is durable before its task ends, and so before its batch is committed.
2. A cell is a function of the batch's planned range alone (see ``parsing``), and a file is named
   after the cell, the refused offsets and the program. So a task that runs again, a speculative
   task, and a batch that runs again find the name taken: each program that reads the stream leaves
   one dead letter for a record.
3. A file waits until it has a mark. Its mark is durable before the file is deleted, and lives for
   as long as its records can be read and parsed again, that is until the source's blocks are
   retired. So a file that a late task creates again does not wait again.

Columns: docs/journal-format.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import pyarrow as pa

from penstock.errors import AlreadyExistsError, ConfigError, DamagedBlockError, NotFoundError
from penstock.journal.block import BlockFooter, encode_block, read_block
from penstock.journal.layout import stream_info_path
from penstock.journal.stream import trusted_storage
from penstock.model import OffsetRange, check_name
from penstock.storage import Storage

_SUFFIX = "-dead"
_REPLAYED = "_replayed"
_NAME = re.compile(
    r"(?P<writer>.+)\.(?P<start>[0-9]{20})-(?P<end>[0-9]{20})\.(?P<count>[0-9]+)-[0-9a-f]{16}"
    r"\.parquet"
)
_COLUMNS = pa.schema(
    [
        pa.field("raw", pa.binary(), nullable=False),
        pa.field("error_type", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("writer", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One refused record; the columns of the files."""

    raw: bytes
    """The record as bytes; see penstock.journal.bad_records.raw_records."""
    error_type: str
    error: str
    writer: str
    """Where the record is in the source stream: its writer, and its offset there."""
    offset: int
    time: datetime
    """When it was refused, in UTC."""


@dataclass(frozen=True, slots=True)
class DeadLetterFile:
    """A file of dead letters, as its name shows it."""

    name: str
    records: OffsetRange
    """The cell: the range of the source's records that was parsed."""
    count: int
    """The number of letters."""


@dataclass(frozen=True)
class DeadLetterFolder:
    """The dead letters of one stream. Small and picklable: it is sent to executors."""

    storage: Storage
    """The journal."""
    source: str
    """The name of the stream, or of the Kafka input."""

    @staticmethod
    def create(storage: Storage, source: str) -> DeadLetterFolder:
        """Return the folder for the dead letters of a stream; it exists with the first of them.

        Raises:
            ConfigError: the name would be too long, or a stream has it.
        """
        name = folder_name(source)
        if storage.exists(stream_info_path(name)):
            raise ConfigError(
                f"a stream has the name {name!r}, under which the dead letters of {source!r} "
                "would be kept",
                operation="open dead letters",
                path=storage.uri(name),
                ids={"stream": source},
                hint="give the input another name",
            )
        return DeadLetterFolder(storage, source)

    @property
    def name(self) -> str:
        """The name of the folder."""
        return f"{self.source}{_SUFFIX}"

    def trusted(self) -> DeadLetterFolder:
        """Return this folder for letters with pickles; see JournalStream.trusted.

        Raises:
            ConfigError: others than this user can write it.
        """
        return replace(self, storage=trusted_storage(self.storage, self.name))

    def store(self, cell: OffsetRange, letters: Sequence[DeadLetter], program: str = "") -> None:
        """Make a program's dead letters of a cell durable, unless they are already.

        ``program`` is the name of its consumer.

        Raises:
            StorageError: they could not be written; none is stored.
        """
        table = pa.Table.from_pylist([asdict(letter) for letter in letters], schema=_COLUMNS)
        path = self._path(_file_name(cell, letters, program))
        with suppress(AlreadyExistsError):  # this cell was parsed before
            self.storage.create(path, encode_block(table, BlockFooter(0, table.num_rows)))

    def waiting(self) -> list[DeadLetterFile]:
        """Return the files with letters that are not replayed, by writer and offset."""
        files = self._files(self.name)  # before the marks: a file is deleted after its mark exists
        marked = {file.name for file in self.replayed()}
        return [file for file in files if file.name not in marked]

    def count_waiting(self) -> int:
        """Return the number of letters that are not replayed, by the names of their files."""
        return sum(file.count for file in self.waiting())

    def replayed(self) -> list[DeadLetterFile]:
        """Return the files that have a mark."""
        return self._files(f"{self.name}/{_REPLAYED}", ".json")

    def read(self, file: DeadLetterFile) -> pa.Table:
        """Return the letters of a file.

        Raises:
            DamagedBlockError: the file is damaged.
        """
        path = self._path(file.name)
        try:
            _, parquet = read_block(self.storage.read(path), self.storage.uri(path))
        except DamagedBlockError as error:
            error.hint = "restore the file from a copy; deleting it discards its dead letters"
            raise
        return parquet.read().cast(_COLUMNS)

    def replayed_offsets(self, file: DeadLetterFile) -> set[int]:
        """Return the offsets of the letters of a file that has a mark."""
        with suppress(NotFoundError):  # removed meanwhile
            return set(json.loads(self.storage.read(self._mark(file)))["offsets"])
        return set()

    def mark_replayed(self, file: DeadLetterFile, offsets: Iterable[int]) -> None:
        """Mark a file, whose letters are stored again, and delete it."""
        with suppress(AlreadyExistsError):
            text = {"writer": file.records.partition, "offsets": sorted(offsets)}
            self.storage.create(self._mark(file), json.dumps(text).encode())
        self.storage.delete(self._path(file.name))

    def tidy(self, oldest: dict[str, int]) -> None:
        """Delete files that have a mark, and the marks of records that are not parsed again.

        ``oldest`` has the first offset of each of the source's writers that is still held.
        """
        existing = {file.name for file in self._files(self.name)}
        for file in self.replayed():
            if file.name in existing:
                self.storage.delete(self._path(file.name))
            if oldest.get(file.records.partition, 0) >= file.records.end_offset:
                self.storage.delete(self._mark(file))

    def _files(self, folder: str, suffix: str = "") -> list[DeadLetterFile]:
        names = (entry.name.removesuffix(suffix) for entry in self.storage.list(folder))
        return [
            DeadLetterFile(
                match[0],
                OffsetRange(match["writer"], int(match["start"]), int(match["end"])),
                int(match["count"]),
            )
            for match in map(_NAME.fullmatch, sorted(names))
            if match
        ]

    def _path(self, name: str) -> str:
        return f"{self.name}/{name}"

    def _mark(self, file: DeadLetterFile) -> str:
        return f"{self.name}/{_REPLAYED}/{file.name}.json"


def folder_name(source: str) -> str:
    """Return the name of the folder with the dead letters of a stream.

    Raises:
        ConfigError: the name would be too long.
    """
    return check_name("stream", f"{source}{_SUFFIX}")


def source_stream(folder: str) -> str:
    """Return the name of the stream that the dead letters in a folder came from.

    Raises:
        ConfigError: it is not the name of such a folder.
    """
    source = folder.removesuffix(_SUFFIX)
    if source in (folder, ""):
        raise ConfigError(
            f"{folder!r} is not a folder of dead letters",
            operation="name dead letters",
            hint=f"they are named after their source stream: STREAM{_SUFFIX}",
        )
    return source


def dead_letter_folders(journal: Storage) -> list[DeadLetterFolder]:
    """Return the folders of dead letters that a journal has."""
    return [
        DeadLetterFolder(journal, entry.name.removesuffix(_SUFFIX))
        for entry in journal.list()
        if entry.is_folder
        and entry.name.endswith(_SUFFIX)
        and not journal.exists(stream_info_path(entry.name))
    ]


def _file_name(cell: OffsetRange, letters: Sequence[DeadLetter], program: str) -> str:
    what = ",".join([program, *(str(letter.offset) for letter in letters)])
    digest = hashlib.sha256(what.encode()).hexdigest()[:16]
    span = f"{cell.start_offset:020d}-{cell.end_offset:020d}"
    return f"{cell.partition}.{span}.{len(letters)}-{digest}.parquet"
