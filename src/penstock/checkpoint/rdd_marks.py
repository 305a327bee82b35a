"""Marks of RDD checkpoints: the files of Spark that hold an operator's state, and its time.

    rdds/marks/<operator>/<time>    a mark
    rdds/<run>/rdd-<n>/part-*       its RDD checkpoint, as Spark wrote it

    v1
    {"kind":"updateStateByKey","shape":{},"file":"<run>/rdd-<n>","sizes":[120,80]}

Spark's folder does not show whether it is complete: if its writer was killed, it reads as an RDD
with fewer partitions. So an RDD checkpoint is valid only when its mark exists.

Invariants:

1. A mark is created, durably, after the files that it names are complete and durable, and never
   changes. It holds the sizes of all partitions, so lost and truncated files are detected.
2. An operator that has run has a mark. The first one records how it began (``file`` is None:
   without state), so that "never ran" and "ran, and wrote no state yet" can be distinguished.
3. A mark is deleted before its files. Files without a mark are not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.checksum import ChecksummedFiles
from penstock.checkpoint.log_format import (
    MalformedLogError,
    check_fields,
    decode_log,
    dump_json,
    encode_log,
    parse_fields,
)
from penstock.errors import AlreadyExistsError, ConcurrentDriverError, LogFormatError
from penstock.storage import Storage

_VERSION = 1
_FIELDS = ("kind", "shape", "file", "sizes")


@dataclass(frozen=True, slots=True)
class RddMark:
    """The description of an RDD checkpoint.

    ``kind`` is the operator's; ``shape`` holds the parameters that must not change for the state to
    continue (such as a window's width); ``file`` is the folder, below ``rdds``, of a partition file
    for each of ``sizes`` (in bytes).
    """

    kind: str
    shape: Mapping[str, int] = field(default_factory=dict)
    file: str | None = None
    sizes: tuple[int, ...] = ()


class RddMarks:
    """The marks in a checkpoint location. Methods always list and read; nothing is cached."""

    def __init__(self, storage: Storage, folder: str = "rdds/marks") -> None:
        self._storage = storage
        self._files = ChecksummedFiles(storage)
        self._folder = folder

    def add(self, operator: str, time_ms: int, mark: RddMark) -> None:
        """Make a mark durable. Adding the same one again changes nothing.

        Raises ConcurrentDriverError if another mark exists for that time, StorageError if it cannot
        be written.
        """
        path = self._path(operator, time_ms)
        try:
            self._files.create(path, _encode(mark))
        except AlreadyExistsError as error:
            if self.get(operator, time_ms) != mark:
                raise ConcurrentDriverError(
                    "another driver made an RDD checkpoint of this operator for the same time",
                    operation="mark RDD checkpoint",
                    path=self._storage.uri(path),
                    ids={"operator": operator, "time_ms": time_ms},
                    hint="stop one of the two, or give each a checkpoint location of its own",
                ) from error

    def get(self, operator: str, time_ms: int) -> RddMark:
        """Return a mark.

        Raises LogFormatError when it is torn, altered or of a newer version, NotFoundError when
        there is none.
        """
        path = self._path(operator, time_ms)
        try:
            return _decode(self._files.read(path))
        except MalformedLogError as error:
            raise LogFormatError(
                str(error),
                operation="read mark of RDD checkpoint",
                path=self._storage.uri(path),
                ids={"operator": operator, "time_ms": time_ms},
                hint=error.hint,
            ) from error.__cause__

    def times_ms(self, operator: str) -> list[int]:
        """Return the times that an operator has marks for, ascending."""
        entries = self._storage.list(f"{self._folder}/{operator}")
        times = (parse_batch_id(entry.name) for entry in entries if not entry.is_folder)
        return sorted(time_ms for time_ms in times if time_ms is not None)

    def operators(self) -> list[str]:
        """Return the operators that have or had marks."""
        return [entry.name for entry in self._storage.list(self._folder) if entry.is_folder]

    def delete(self, operator: str, time_ms: int) -> None:
        """Remove a mark if it exists; raises StorageError if it cannot be removed."""
        self._files.delete(self._path(operator, time_ms))

    def url(self, operator: str, time_ms: int) -> str:
        """Return the path of a mark."""
        return self._storage.uri(self._path(operator, time_ms))

    def _path(self, operator: str, time_ms: int) -> str:
        return f"{self._folder}/{operator}/{time_ms}"


def _encode(mark: RddMark) -> bytes:
    values = (mark.kind, dict(mark.shape), mark.file, list(mark.sizes))
    return encode_log(_VERSION, [dump_json(dict(zip(_FIELDS, values, strict=True)))])


def _decode(data: bytes) -> RddMark:
    lines = decode_log(data, _VERSION)
    if len(lines) != 1:
        raise MalformedLogError(f"Incomplete log file: {len(lines)} lines, not 1")
    fields = parse_fields(lines[0])
    check_fields(fields, _FIELDS)
    mark = _from_fields(fields)
    if mark is None or _encode(mark) != data:
        raise MalformedLogError(f"Log file was malformed: {lines[0]} is not a mark")
    return mark


def _from_fields(fields: Mapping[str, Any]) -> RddMark | None:
    kind, shape, file, sizes = (fields[name] for name in _FIELDS)
    right = (
        isinstance(kind, str)
        and isinstance(shape, dict)
        and _are_counts(list(shape.values()))
        and isinstance(sizes, list)
        and _are_counts(sizes)
        and (isinstance(file, str) or (file is None and not sizes))
    )
    return RddMark(kind, shape, file, tuple(sizes)) if right else None


def _are_counts(values: Sequence[object]) -> bool:
    return all(type(value) is int and value >= 0 for value in values)
