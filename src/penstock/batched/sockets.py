"""The folder of the UNIX sockets by which Spark talks to its Pythons.

Whoever listens on such a socket in the place of Spark is obeyed: functions come that way. So
no other user may write to the folder, nor to any above it: not in ``/tmp``, where whoever
cleans up may remove the folder of a program that lives long, and any user can create it again.

A process holds the lock of its folder. A killed one leaves its folder, which the next process
removes: its lock is free, and it is older than a minute (a newer one may be about to be locked).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from penstock.errors import ConfigError
from penstock.storage import posix
from penstock.storage.trust import check_trusted

_PREFIX = "sockets-"
_STARTING_S = 60.0
_MOST_OF_PATH = 60
"""Of a socket's path, which has 104 bytes or few more, Spark's name for it needs the others."""


def socket_folder() -> str | None:
    """Create this process's folder, in the user's cache; None where there is no safe place."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parent = os.path.join(cache, "penstock")
    if os.name != "posix" or not os.path.isabs(parent):
        return None
    try:
        os.makedirs(parent, 0o700, exist_ok=True)
        parent = os.path.realpath(parent)
        for folder in (parent, *Path(parent).parents):
            check_trusted(str(folder))
        _remove_abandoned(parent)
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        if len(folder) > _MOST_OF_PATH:
            os.rmdir(folder)
            return None
        posix.try_lock(os.open(folder, os.O_RDONLY))  # until the process ends
    except (ConfigError, OSError):  # a home that does not exist, is read-only, or has no locks
        return None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_abandoned(parent: str) -> None:
    with os.scandir(parent) as entries:
        found = [each.path for each in entries if each.name.startswith(_PREFIX)]
    for path in found:
        with suppress(OSError):  # another process is removing it, or holds its lock
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if time.time() - os.fstat(fd).st_mtime > _STARTING_S:
                    posix.try_lock(fd)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(fd)
