"""The storage contract: small immutable files, atomically created.

Everything durable in penstock (journal blocks, offsets, commits, control files) goes through these
operations, so these guarantees apply everywhere. Paths are relative to the storage's root,
with "/" between parts, and never contain "." or ".." parts.

Invariants of every backend (tests/storage/file_manager_suite.py runs on each):

1. ``create`` is atomic: a reader sees either no file or the whole file, also after a crash at any
   step.
2. ``create`` is durable: when it returns, the file and its name survive a power cut.
3. ``create`` without ``overwrite`` is exclusive: if several callers, in any processes, create one
   name, exactly one succeeds and the others get AlreadyExistsError. The name is the lock.
4. Names that ``list`` returned survive a power cut: a newly linked name is made durable before the
   caller can depend on it.
5. A failed fsync is never retried on the same file. ``create`` raises; the caller does not know
   whether the name exists afterwards, and must list to find out.

``spark.penstock.checkpointFileManagerClass`` names a class of a program's own, with this interface:
docs/checkpoint-file-manager.md.

Not guaranteed: empty directories (a folder exists if it contains a file), modification times,
appending, renaming.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.errors import ConfigError

# The leading dot also hides such files from Spark, which skips names that start with "." or "_".
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)


class Entry(NamedTuple):
    """One direct child of a folder: ``size`` in bytes, 0 for folders."""

    name: str
    size: int = 0
    is_folder: bool = False


class FileInfo(NamedTuple):
    """One file at any depth: ``size`` in bytes, ``modified_ms`` since the epoch where known."""

    path: str
    size: int = 0
    modified_ms: int | None = None


class Storage(ABC):
    """Small immutable files under one root. Instances are thread-safe and pickle as their URL.

    A class that is made with more than the URL overrides ``open_folder`` and ``__reduce__``.
    """

    url: str
    """The root, as a URL with a scheme (``file:///...``, ``memory://...``, ``s3://...``)."""

    @abstractmethod
    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        """Write ``data`` (bytes or any buffer) as the file ``path``, atomically and durably.

        Parent folders are created as needed. Raises AlreadyExistsError if the name is taken and
        ``overwrite`` is False, StorageFullError if no space is left or the file system is
        read-only, StorageError otherwise.
        """

    @abstractmethod
    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes ``[start, end)`` of a file; negative values count from the end.

        Raises NotFoundError if the file does not exist.
        """

    @abstractmethod
    def list(self, folder: str = "") -> Sequence[Entry]:
        """Return a folder's direct children, sorted by name; none without the folder.

        Temporary files of unfinished creates are left out.
        """

    def names(self, folder: str = "") -> Sequence[str]:
        """Return the names of the files directly in a folder, sorted, as durable as with ``list``.

        For folders of many files: without sizes, a local file system reads no file's status.
        """
        return [entry.name for entry in self.list(folder) if not entry.is_folder]

    def find(self, folder: str = "") -> Sequence[str]:
        """Return the paths of all files in a folder and below it, sorted; none without the folder.

        Unlike with ``list``, a returned name may not survive a power cut yet. Costs one listing if
        the store has a recursive one, otherwise one listing for each folder.
        """
        return [
            found.path
            for found in self.walk(folder)
            if not is_temporary(found.path.rpartition("/")[2])
        ]

    def walk(self, folder: str = "") -> Sequence[FileInfo]:
        """Return all files in a folder and below it, sorted by path; none without the folder.

        For tools that read: temporary files of unfinished creates are among them, and other than
        what ``list`` returns, a name may not survive a power cut yet. One listing where the store
        has such a one, else one for each folder.
        """
        prefix = f"{folder}/" if folder else ""
        found: list[FileInfo] = []
        for entry in self.list(folder):
            path = f"{prefix}{entry.name}"
            found.extend(self.walk(path) if entry.is_folder else [FileInfo(path, entry.size)])
        return sorted(found)

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file; a missing file is not an error (so a delete can be repeated).

        Durable: when it returns, the file does not come back, so deletes keep their order.
        """

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files as ``delete`` does, in one request if the store supports it.

        After an error some files may be left: the call can be repeated.
        """
        for path in paths:
            self.delete(path)

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def sweep(self, folder: str = "") -> None:  # noqa: B027 - not every backend has such files
        """Remove temporary files that killed processes left in a folder; not below it.

        Creates that are in progress there, in any process, are not affected. Files that cannot be
        removed stay for the next sweep.
        """

    def without_sync(self) -> Storage:
        """Return this storage without the guarantees for power cuts (2, 4 and 5).

        Creates stay atomic and exclusive for as long as the machine runs. If the files of a store
        are always durable, this returns the storage itself.
        """
        return self

    def private(self) -> Storage:
        """Return this storage for files that are unpickled, which runs code.

        Only this user can access the files and folders that it creates, regardless of the umask,
        and ``read`` raises ConfigError for a file that another user could have written or created
        (see penstock.storage.trust). On object stores this returns the storage itself: their access
        control decides who may write.
        """
        return self

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the full URI of a file in Spark's form: Hadoop's scheme, no percent-encoding."""

    def open_folder(self, folder: str) -> Storage:
        """Return the storage whose root is a folder of this one, private if this one is."""
        return type(self)(f"{self.url.rstrip('/')}/{check_path(folder)}")  # type: ignore[call-arg]

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (type(self), (self.url,))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


CheckpointFileManager = Storage
"""The interface under the name of Spark's, for classes of programs."""


def check_path(path: str) -> str:
    """Return ``path`` if it is relative and stays under the root, else raise ConfigError."""
    if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")):
        raise ConfigError(
            f"storage path {path!r} is not a clean relative path",
            operation="check path",
            path=path,
            hint="give parts joined by single slashes, none of them '.', '..' or with a null byte",
        )
    return path


def temporary_name(name: str) -> str:
    """Return a new hidden name for a file that will become ``name``."""
    return f".{name}.{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether ``name`` has the form of temporary_name; no file may be created under such a name."""
    # Listings ask this for every name, so the usual answer comes without the pattern.
    return name[:1] == "." and name[-4:] == ".tmp" and _TEMPORARY.fullmatch(name) is not None
