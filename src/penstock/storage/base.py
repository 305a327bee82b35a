"""The storage contract: small immutable files, atomically created.

Everything durable in penstock (journal blocks, offsets, commits, control files) goes through these
five operations, so whatever holds here holds everywhere. Paths are relative to the storage's root,
with "/" between parts, and never contain "." or ".." parts.

Invariants that every backend keeps (tests/storage/test_conformance.py runs over each):

1. ``create`` is atomic: a reader sees nothing or the whole file, also after a crash at any step.
2. ``create`` is durable: when it returns, the file and its name survive a power cut.
3. ``create`` without ``overwrite`` is exclusive: of several callers on one name, in any processes,
   exactly one succeeds and the others get AlreadyExistsError. The name is the lock.
4. What ``list`` returned survives a power cut: a name that was only just linked is made durable
   before the caller can build on it.
5. A failed fsync is never retried on the same file. ``create`` raises; whether the name exists
   afterwards is unknown to the caller, who must list to learn it.

Not promised: directories as such (a folder exists when a file is in it), modification times,
appending, renaming.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import ConfigError

__all__ = ["Entry", "FileInfo", "Storage", "check_path"]


@dataclass(frozen=True, slots=True, order=True)
class Entry:
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
    """Small immutable files under one root. Instances are thread-safe and pickle as their URL."""

    url: str
    """The root, as a URL with a scheme (``file:///...``, ``memory://...``, ``s3://...``)."""

    @abstractmethod
    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        """Write ``data`` (bytes or any buffer) as the file ``path``, atomically and durably.

        Parent folders come into being as needed. Raises AlreadyExistsError when the name is taken
        and ``overwrite`` is False, StorageFullError when there is no room or the file system is
        read-only, StorageError otherwise.
        """

    @abstractmethod
    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes ``[start, end)`` of a file; negatives count from its end, as in slices.

        Raises NotFoundError when there is no such file.
        """

    @abstractmethod
    def list(self, folder: str = "") -> Sequence[Entry]:
        """Return a folder's direct children, sorted by name; none when there is no such folder.

        Temporary files of unfinished creates are left out.
        """

    def find(self, folder: str = "") -> Sequence[str]:
        """Return the paths of all files in a folder and below it, sorted; none without the folder.

        Other than what ``list`` returns, a name may not survive a power cut yet. One listing where
        the store has such a one, else one for each folder.
        """
        prefix = f"{folder}/" if folder else ""
        found: list[str] = []
        for entry in self.list(folder):
            path = f"{prefix}{entry.name}"
            found.extend(self.find(path) if entry.is_folder else [path])
        return sorted(found)

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
        """Remove a file; one that is not there is no error (so a delete can be repeated).

        Durable: when it returns, the file does not come back, so deletes keep their order.
        """

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files as ``delete`` does, at the cost of one request where the store can.

        After an error any of them may be left: the call can be repeated.
        """
        for path in paths:
            self.delete(path)

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether the file is there."""

    def sweep(self, folder: str = "") -> None:  # noqa: B027 - not every backend has such files
        """Remove temporary files that killed processes left in a folder; not below it.

        Creates that are under way there, in any process, are not harmed. What cannot be removed
        stays for the next sweep.
        """

    def without_sync(self) -> Storage:
        """Return this storage without the promises to survive a power cut (2, 4 and 5).

        Creates stay atomic and exclusive, for as long as the machine runs. Where files are durable
        as soon as they are there, it is this storage.
        """
        return self

    def private(self) -> Storage:
        """Return this storage for files that are unpickled, so run as code.

        Files and folders that it creates are this user's alone, whatever the umask, and ``read``
        raises ConfigError for a file that another user could have written or put there (see
        penstock.storage.trust). On object stores it is this storage: their own access control says
        who may write.
        """
        return self

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the full URI of a file as Spark takes it: Hadoop's scheme, no percent-encoding."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


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
