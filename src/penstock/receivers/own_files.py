"""A receiver's own small files: data that it keeps beside the records and their positions.

A position is in every block, so it must be small. Large data is stored in files here, and the
position names them. So the newest block or seal still determines everything.

Invariants:

1. A file is durable when ``create`` returns, and never changes: it may be named in a position then.
2. Attempts of one receiver share the folder, and an attempt that was taken over may still run. So a
   file's name should tell its writer, and an attempt may only delete what it created itself, and
   what attempts before it left and its own ``lastPosition`` at its start did not name.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from penstock.errors import ReceiverError
from penstock.journal.layout import WriterId, parse_writer
from penstock.storage import Storage


class OwnFiles(Protocol):
    """The files of one receiver, by name. Errors are the storage's."""

    def create(self, name: str, data: bytes) -> None:
        """Make a file durable; AlreadyExistsError when there is one of that name."""

    def read(self, name: str) -> bytes:
        """Return a file's content; NotFoundError if it does not exist."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""


class StoredFiles:
    """OwnFiles in a folder of a storage."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def create(self, name: str, data: bytes) -> None:
        """See OwnFiles.create."""
        self._storage.create(self._path(name), data)

    def read(self, name: str) -> bytes:
        """See OwnFiles.read."""
        return self._storage.read(self._path(name))

    def names(self) -> list[str]:
        """See OwnFiles.names."""
        return [entry.name for entry in self._storage.list(self._folder) if not entry.is_folder]

    def delete(self, name: str) -> None:
        """See OwnFiles.delete."""
        self._storage.delete(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"


def create_json(files: OwnFiles, name: str, value: Any) -> None:
    """Make a JSON value durable, under a checksum. Raises as ``OwnFiles.create``."""
    text = json.dumps(value).encode()
    files.create(name, _checksum(text) + b"\n" + text)


def read_json(files: OwnFiles, name: str) -> Any:
    """Return the value that ``create_json`` made durable.

    Raises as ``OwnFiles.read``, and:
        ReceiverError: the file is damaged.
    """
    checksum, _, text = files.read(name).partition(b"\n")
    if checksum != _checksum(text):
        raise ReceiverError(
            "a file that the position names is damaged: its checksum differs",
            operation="resume receiver",
            path=name,
            hint="restore it from a copy; or delete it, and what it covered is stored again when "
            "the source sends it again",
        )
    return json.loads(text)


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)


class NumberedFile(NamedTuple):
    """A file whose name tells its writer. Sorted, files are in the order of their creation."""

    writer: WriterId
    number: int
    name: str


def numbered_name(prefix: str, writer: str, number: int) -> str:
    """Return the name of a writer's file with this number."""
    return f"{prefix}{writer}-{number:08d}"


def numbered_files(files: OwnFiles, prefix: str) -> Iterator[NumberedFile]:
    """Yield the files with names of ``numbered_name``; others are left out."""
    for name in files.names():
        writer, _, number = name.removeprefix(prefix).rpartition("-")
        its = parse_writer(writer)
        if name.startswith(prefix) and its and number.isascii() and number.isdigit():
            yield NumberedFile(its, int(number), name)
