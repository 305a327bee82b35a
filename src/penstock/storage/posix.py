"""POSIX calls for files on this machine; importing this module elsewhere raises ImportError."""

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

_NOT_SUPPORTED = (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL)


def sync(fd: int) -> None:
    """Make an open file's content, or a folder's names, survive a power cut.

    On macOS fsync leaves them in the drive's cache; F_FULLFSYNC also flushes the cache. A file
    system without F_FULLFSYNC (a network mount) gets fsync.
    """
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(fd)
        return
    try:
        fcntl.fcntl(fd, full)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise  # a failed sync is not retried: see Storage, invariant 5
        os.fsync(fd)


def sync_path(path: str) -> None:
    """Do ``sync`` with a file or folder that another process wrote, such as Spark's."""
    fd = os.open(path, os.O_RDONLY)
    try:
        sync(fd)
    finally:
        os.close(fd)


def open_no_link(path: str, flags: int, mode: int) -> int:
    """Open a file that this process writes in place; OSError (ELOOP) if it is a symbolic link.

    With a link, the content of the link's target would be overwritten.
    """
    return os.open(path, flags | os.O_NOFOLLOW, mode)


def try_lock(fd: int, *, shared: bool = False) -> None:
    """Take the lock of an open file; BlockingIOError if another process has it exclusively.

    A lock that is not shared is exclusive: no one else may have either.
    """
    fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def unlock(fd: int) -> None:
    """Release the lock of an open file."""
    fcntl.flock(fd, fcntl.LOCK_UN)
