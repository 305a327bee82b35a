"""One driver on a checkpoint location: a lock that the kernel always releases.

On a local file system (or one mounted with locks, such as NFS) the driver holds ``flock`` on the
file ``driver.lock``. Invariants:

1. The lock ends with the process that took it, also after kill -9, and never by time: a stopped or
   slow driver keeps it, so it cannot wake up while its successor runs.
2. No child keeps it: the descriptor is closed on exec (like all descriptors of Python, so the JVM
   and workers never have it), and closed in a forked child.
3. It also excludes within a process, because each acquire opens the file again.
4. The file stays when the lock is released: otherwise a third driver could lock a new file while a
   second one still waits for the old one. The content is informative only; the lock counts.
5. Whoever asks whether a driver runs (``driver_runs``) shares the lock for an instant, so a driver
   that finds it taken tries for a moment.

Object stores have no such lock, and some shared mounts have locks that other hosts do not see.
There, offsets/N fences (penstock.checkpoint.batch_life, invariants 1 and 4): the second of two
drivers to plan a batch gets ConcurrentDriverError, and so does a driver that wakes up after its
successor has planned one. Until then the same batch may run on both.
"""

from __future__ import annotations

import json
import os
import socket
import time
from datetime import datetime, timezone
from weakref import WeakSet

from penstock.errors import ConcurrentDriverError, ConfigError
from penstock.storage import posix

LOCK_NAME = "driver.lock"
"""In the checkpoint location."""
_TRIES, _PAUSE_S = 4, 0.01


class DriverLock:
    """The lock in the file ``path``, whose folder exists. Not held until ``acquire``."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object, in this process, holds the lock."""
        return self._fd is not None

    def acquire(self) -> None:
        """Take the lock, or fail at once.

        Raises ConcurrentDriverError, which names the holder, if it is taken (also by this object),
        and ConfigError if its file is a link or cannot be opened, or if the file system has no
        locks.
        """
        fd = self._open()
        try:
            _try_lock(fd)
            _write_holder(fd)
        except BlockingIOError:
            holder = _read_holder(fd)
            os.close(fd)
            raise self._taken(holder) from None  # it has all information of the system's error
        except OSError as error:
            os.close(fd)
            raise ConfigError(
                "the checkpoint location's file system cannot lock files",
                operation="lock checkpoint location",
                path=self._path,
                hint="choose a checkpoint location on a local file system, NFS, or an object store",
            ) from error
        self._fd = fd
        _held.add(self)

    def release(self) -> None:
        """Release the lock; does nothing if it is not held."""
        if self._fd is not None:
            # Unlocked explicitly, in case a child that Python does not know has the descriptor.
            posix.unlock(self._fd)
            self._close()

    def _open(self) -> int:
        try:
            return posix.open_no_link(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                "the lock file of the checkpoint location cannot be opened",
                operation="lock checkpoint location",
                path=self._path,
                hint="it must be a file, not a link, that this user can write: remove a link that "
                "stands there",
            ) from error

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        _held.discard(self)
        if fd is not None:
            os.close(fd)

    def _taken(self, holder: dict[str, object]) -> ConcurrentDriverError:
        host, pid = holder["host"], holder["pid"]
        if (host, pid) == (socket.gethostname(), os.getpid()):
            hint = "stop the context of this process that uses it before you start another"
        else:
            hint = (
                f"stop process {pid} on host {host} (if it hangs: kill -9), or give this driver a"
                " checkpoint location of its own; never remove the lock file"
            )
        return ConcurrentDriverError(
            "another driver uses this checkpoint location",
            operation="lock checkpoint location",
            path=self._path,
            ids=holder,
            hint=hint,
        )


def driver_runs(path: str) -> bool | None:
    """Return whether a driver holds the lock in the file ``path``; None where nothing tells.

    That is where there is no such file, where the file system has no locks, and where a driver on
    another host had the lock last: locks of a shared mount may not be seen from here.
    """
    try:
        fd = posix.open_no_link(path, os.O_RDONLY, 0)
    except OSError:
        return None
    try:
        if _read_holder(fd)["host"] != socket.gethostname():
            return None
        posix.try_lock(fd, shared=True)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def _try_lock(fd: int) -> None:
    for _ in range(_TRIES - 1):
        try:
            return posix.try_lock(fd)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
    posix.try_lock(fd)


def _write_holder(fd: int) -> None:
    holder = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    text = json.dumps(holder).encode()
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))


def _read_holder(fd: int) -> dict[str, object]:
    """Return the holder according to the file, which may be incomplete while it is written."""
    try:
        holder = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        holder = None
    names = ("host", "pid", "since")
    return {name: holder.get(name) if isinstance(holder, dict) else "unknown" for name in names}


_held: WeakSet[DriverLock] = WeakSet()


def _forget_in_child() -> None:
    # Closed, not unlocked: an unlock in the child would release the parent's lock.
    for lock in tuple(_held):
        lock._close()


os.register_at_fork(after_in_child=_forget_in_child)
