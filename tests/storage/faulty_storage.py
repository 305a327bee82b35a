"""A storage that fails, fills up and reads back damage when a test says so."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from penstock.errors import ConfigError, StorageError, StorageFullError
from penstock.storage import Entry, FileInfo, Storage
from penstock.storage.checks import as_buffer

__all__ = ["FaultyStorage", "Operation", "OperationKind"]

_T = TypeVar("_T")

OperationKind = Literal["create", "read", "list", "delete", "exists"]
"""What is done to a file."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a storage method; ``size`` is the bytes to be created, else 0."""

    kind: OperationKind
    path: str
    size: int = 0


@dataclass(slots=True)
class _Failure:
    kind: OperationKind
    pattern: str
    remaining: int
    after: bool
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Damage:
    pattern: str
    cut_at: int | None
    flip_at: int | None

    def apply(self, content: bytes) -> bytes:
        if self.flip_at is not None and -len(content) <= self.flip_at < len(content):
            flipped = bytearray(content)
            flipped[self.flip_at] ^= 0xFF
            content = bytes(flipped)
        return content[: self.cut_at]


class FaultyStorage(Storage):
    """Passes every operation on to ``inner``, except for the faults that a test has ordered.

    ``before`` is called with each operation before it begins, in the caller's thread and outside of
    any lock: it may block (to stop a thread at that point), or raise. ``operations`` records all
    operations in the order they began, failed ones too. Pickles as ``inner``: faults stay in the
    process that ordered them.
    """

    def __init__(
        self, inner: Storage, *, before: Callable[[Operation], None] | None = None
    ) -> None:
        self.url = inner.url
        self.before = before
        self.operations: list[Operation] = []
        self._inner = inner
        self._lock = threading.Lock()
        self._failures: list[_Failure] = []
        self._damages: list[_Damage] = []
        self._room_bytes: int | None = None

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self._inner.__reduce__()

    def fail(
        self,
        kind: OperationKind,
        *,
        nth: int = 1,
        path: str = "*",
        after: bool = False,
        error: BaseException | None = None,
    ) -> None:
        """Make the ``nth`` operation of ``kind`` from now on fail, once.

        Only operations whose path matches the shell pattern ``path`` count. With ``after``, the
        operation takes effect and fails all the same, as when an answer is lost. ``error`` is what
        is raised, by default a StorageError from EIO.
        """
        if nth < 1:
            raise ConfigError(
                f"nth is {nth}, but counts from 1", operation="order a fault", hint="give nth=1"
            )
        if error is None:
            error = StorageError("a fault was ordered", operation=kind, path=path)
            error.__cause__ = OSError(errno.EIO, "Input/output error")
        with self._lock:
            self._failures.append(_Failure(kind, path, nth, after, error))

    def fill_up(self, after_bytes: int = 0) -> None:
        """Raise StorageFullError for what is created beyond ``after_bytes`` from now on."""
        with self._lock:
            self._room_bytes = after_bytes

    def free_up(self) -> None:
        """End what ``fill_up`` began."""
        with self._lock:
            self._room_bytes = None

    def damage(self, path: str, *, cut_at: int | None = None, flip_at: int | None = None) -> None:
        """Give damaged content for files that match the pattern ``path``, until ``repair``.

        ``cut_at`` keeps that many bytes (negative: drops that many from the end); ``flip_at``
        inverts the byte at that index, where there is one. ``list`` still tells the whole size.
        """
        with self._lock:
            self._damages.append(_Damage(path, cut_at, flip_at))

    def repair(self) -> None:
        """End all damage."""
        with self._lock:
            self._damages.clear()

    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        """See Storage.create."""
        operation = Operation("create", path, len(as_buffer(data, path)))
        self._run(operation, lambda: self._create(operation, data, overwrite))

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """See Storage.read."""
        return self._run(Operation("read", path), lambda: self._read(path, start, end))

    def list(self, folder: str = "") -> Sequence[Entry]:
        """See Storage.list."""
        return self._run(Operation("list", folder), lambda: self._inner.list(folder))

    def find(self, folder: str = "") -> Sequence[str]:
        """See Storage.find; it is an operation of kind "list"."""
        return self._run(Operation("list", folder), lambda: self._inner.find(folder))

    def walk(self, folder: str = "") -> Sequence[FileInfo]:
        """See Storage.walk; it is an operation of kind "list"."""
        return self._run(Operation("list", folder), lambda: self._inner.walk(folder))

    def delete(self, path: str) -> None:
        """See Storage.delete."""
        self._run(Operation("delete", path), lambda: self._inner.delete(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        """See Storage.delete_all: one operation, of the first path."""
        if paths:
            self._run(Operation("delete", paths[0]), lambda: self._inner.delete_all(paths))

    def sweep(self, folder: str = "") -> None:
        """See Storage.sweep."""
        self._inner.sweep(folder)

    def exists(self, path: str) -> bool:
        """See Storage.exists."""
        return self._run(Operation("exists", path), lambda: self._inner.exists(path))

    def open_folder(self, folder: str) -> Storage:
        """See Storage.open_folder; without faults."""
        return self._inner.open_folder(folder)

    def uri(self, path: str) -> str:
        """See Storage.uri."""
        return self._inner.uri(path)

    def _run(self, operation: Operation, action: Callable[[], _T]) -> _T:
        with self._lock:
            self.operations.append(operation)
            failure = self._due(operation)
        if self.before is not None:
            self.before(operation)
        if failure is not None and not failure.after:
            raise failure.error
        result = action()
        if failure is not None:
            raise failure.error
        return result

    def _due(self, operation: Operation) -> _Failure | None:
        """Count ``operation`` against all ordered failures; return the first that it reaches."""
        due = None
        for failure in self._failures:
            if failure.kind == operation.kind and fnmatchcase(operation.path, failure.pattern):
                failure.remaining -= 1
                if failure.remaining == 0 and due is None:
                    due = failure
        self._failures = [failure for failure in self._failures if failure.remaining > 0]
        return due

    def _create(self, operation: Operation, data: Any, overwrite: bool) -> None:
        with self._lock:
            if self._room_bytes is not None:
                if operation.size > self._room_bytes:
                    raise StorageFullError(
                        "no room, as ordered", operation="create", path=operation.path
                    )
                self._room_bytes -= operation.size
        self._inner.create(operation.path, data, overwrite=overwrite)

    def _read(self, path: str, start: int, end: int | None) -> bytes:
        with self._lock:
            damages = [damage for damage in self._damages if fnmatchcase(path, damage.pattern)]
        if not damages:
            return self._inner.read(path, start, end)
        content = self._inner.read(path)
        for damage in damages:
            content = damage.apply(content)
        return content[start:end]
