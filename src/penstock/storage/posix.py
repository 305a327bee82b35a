"""What files on this machine need of a POSIX system; importing it elsewhere raises ImportError."""

from __future__ import annotations

import errno
import os
import sys

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        f"penstock locks and syncs its files with fcntl, which Python on {sys.platform!r} lacks. "
        "Run it on Linux or macOS; on Windows, use WSL 2 or a Linux container."
    ) from error

__all__ = ["open_no_link", "sync", "try_lock", "unlock"]

_NOT_SUPPORTED = (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL)


def sync(fd: int) -> None:
    """Make an open file's content, or a folder's names, survive a power cut.

    On macOS fsync leaves them in the drive's cache; F_FULLFSYNC empties that, too. A file system
    that does not know it (a network mount) gets fsync.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
        return
    try:
        fcntl.fcntl(fd, full)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise  # what failed to reach the disk is not asked for again: see Storage, invariant 5
        os.fsync(fd)


def open_no_link(path: str, flags: int, mode: int) -> int:
    """Open a file that this process writes in place; OSError (ELOOP) where a symbolic link stands.

    A link would have the content of the file that it points to overwritten.
    """
    return os.open(path, flags | os.O_NOFOLLOW, mode)


def try_lock(fd: int) -> None:
    """Take the exclusive lock of an open file; BlockingIOError when another holds it."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(fd: int) -> None:
    """Release the lock of an open file."""
    fcntl.flock(fd, fcntl.LOCK_UN)
