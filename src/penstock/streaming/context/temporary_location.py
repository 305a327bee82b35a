"""The location of a program without a checkpoint location: a folder for one process.

A killed process leaves its folder, so the next process that creates such a folder removes the old
ones.

Invariant: a folder is removed only if it belongs to this user and its driver lock is free, which
shows that no driver uses it. A driver may have created a lock file younger than a minute and not
locked it yet: its folder is kept until the next time.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress

from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.errors import PenstockError

_log = logging.getLogger(__name__)
_PREFIX = "penstock-run-"
_STARTING_S = 60.0


def make_temporary_location() -> str:
    """Create a new folder, and remove those of killed processes; return its path."""
    for path in _abandoned(tempfile.gettempdir()):
        _remove(path)
    return tempfile.mkdtemp(prefix=_PREFIX)


def _abandoned(parent: str) -> Iterator[str]:
    """Yield the locations of this user that may have lost their driver."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(
                    OSError
                ):  # it is being removed, or its driver has not created the file yet
                    locked = os.lstat(os.path.join(entry.path, LOCK_NAME))
                    is_mine = entry.stat(follow_symlinks=False).st_uid == os.getuid()
                    if is_mine and time.time() - locked.st_mtime > _STARTING_S:
                        yield entry.path


def _remove(path: str) -> None:
    lock = DriverLock(os.path.join(path, LOCK_NAME))
    try:
        lock.acquire()
    except (OSError, PenstockError):
        return  # it is in use, or being removed
    try:
        shutil.rmtree(path, ignore_errors=True)
        _log.info("Removed %s: its program was killed", path)
    finally:
        lock.release()
