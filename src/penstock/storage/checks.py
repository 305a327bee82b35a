"""Checks of arguments and translation of errors, for all backends."""

from __future__ import annotations

import errno
from typing import Any

from penstock.errors import (
    AlreadyExistsError,
    ConfigError,
    NotFoundError,
    StorageError,
    StorageFullError,
)
from penstock.storage.base import check_path, is_temporary

_FULL = {
    errno.ENOSPC: ("no space is left", "free space there, then start again"),
    errno.EDQUOT: ("the quota is reached", "raise the quota or free space, then start again"),
    errno.EROFS: (
        "the file system is read-only",
        "mount it for writing; if the kernel made it read-only, see the system log (dmesg)",
    ),
}
_REFUSED = (errno.EACCES, errno.EPERM)
_READING = ("read", "list", "look for")
_HINTS = {
    errno.EIO: "see the system log (dmesg): the disk or its connection fails",
}
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

# Spark and Hadoop treat these as wildcards in any path, so such a root could be written but not
# scanned.
_WILDCARDS = frozenset("*?[]{}\\")


def check_root(root: str) -> str:
    """Return ``root`` if Spark can scan files under it, else raise ConfigError."""
    wildcards = sorted(_WILDCARDS & set(root))
    if wildcards or "\0" in root:
        what = f"{' '.join(wildcards)} (wildcards to Spark)" if wildcards else "a null byte"
        raise ConfigError(
            f"storage root {root!r} contains {what}",
            operation="open storage",
            path=root,
            hint="choose a path without such characters",
        )
    return root


def check_new_path(path: str) -> str:
    """Return ``path`` if a file may be created under it, else raise ConfigError."""
    if is_temporary(check_path(path).rpartition("/")[2]):
        raise ConfigError(
            f"storage path {path!r} has the form of a temporary file, which list leaves out",
            operation="create",
            path=path,
            hint="choose a name that does not look like .NAME.<16 hex digits>.tmp",
        )
    return path


def as_buffer(data: Any, path: str) -> memoryview:
    """Return ``data`` as flat bytes, uncopied; ConfigError if it is not a contiguous buffer."""
    try:
        return memoryview(data).cast("B")
    except TypeError as error:
        raise ConfigError(
            f"cannot store a {type(data).__name__}: it is not bytes or a contiguous buffer",
            operation="create",
            path=path,
            hint="encode text, or call bytes() on it, first",
        ) from error


def slice_bounds(start: int, end: int | None, size: int) -> tuple[int, int]:
    """Return ``start`` and length of ``[start, end)`` in a file of ``size`` bytes, as slices do."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(last - first, 0)


def name_taken(path: str, url: str) -> AlreadyExistsError:
    """Return the error of an exclusive create that found its name taken."""
    return AlreadyExistsError(
        "the name is taken",
        operation="create",
        path=path,
        ids={"storage": url},
        hint="another process was first; list the folder to see what it wrote",
    )


def storage_error(error: Exception, *, operation: str, path: str, url: str) -> StorageError:
    """Translate ``error`` of ``operation`` on ``path`` to an error of penstock's tree.

    FileExistsError is not translated: only the step that names a file can distinguish a taken name
    from another obstacle.
    """
    number = error.errno if isinstance(error, OSError) else None
    facts: dict[str, Any] = {"operation": operation, "path": path or None, "ids": {"storage": url}}
    if number in _FULL:
        what, hint = _FULL[number]
        return StorageFullError(f"cannot {operation}: {what}", hint=hint, **facts)
    if operation == "read" and isinstance(error, _MISSING):
        return NotFoundError("the file does not exist", hint="list the folder", **facts)
    advice = _permission_hint(operation) if number in _REFUSED else _HINTS.get(number or 0)
    return StorageError(f"cannot {operation} {path or url}", hint=advice, **facts)


def _permission_hint(operation: str) -> str:
    """Name only the needed permissions: a start refuses state that others can write to."""
    needed = "read" if operation in _READING else "read and write"
    return f"give this user {needed} permission there"
