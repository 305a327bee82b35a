"""The location of a program that was given none: a folder that goes with its process.

A process that is killed leaves it, as nobody else knows that it is worth nothing; so the next one
that makes such a folder removes what it finds of them.

Invariant: a folder goes only when it is this user's and nobody drives it, which its driver lock
tells, wherever that process runs. A lock file that is younger than a minute may be one that its
driver has made and not yet locked: its folder stays for the next time.
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

__all__ = ["make_temporary_location"]

_log = logging.getLogger(__name__)
_PREFIX = "penstock-run-"
_STARTING_S = 60.0


def make_temporary_location() -> str:
    """Make a new folder, and remove those of processes that were killed; return its path."""
    for path in _abandoned(tempfile.gettempdir()):
        _remove(path)
    return tempfile.mkdtemp(prefix=_PREFIX)


def _abandoned(parent: str) -> Iterator[str]:
    """Yield the locations of this user that may have lost their driver."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # it goes, or its driver has not come so far
                    locked = os.lstat(os.path.join(entry.path, LOCK_NAME))
                    is_mine = entry.stat(follow_symlinks=False).st_uid == os.getuid()
                    if is_mine and time.time() - locked.st_mtime > _STARTING_S:
                        yield entry.path


def _remove(path: str) -> None:
    lock = DriverLock(os.path.join(path, LOCK_NAME))
    try:
        lock.acquire()
    except (OSError, PenstockError):
        return  # it is driven, or goes
    try:
        shutil.rmtree(path, ignore_errors=True)
        _log.info("Removed %s: the program that it belonged to was killed", path)
    finally:
        lock.release()
