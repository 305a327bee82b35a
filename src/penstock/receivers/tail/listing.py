"""What is on disk: the files that patterns name, and the files beside a path."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import stat
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.receivers.tail.follow import FileId, Sibling
from penstock.receivers.tail.followed_file import file_id

_STABLE_TRIES = 50
_STABLE_WAIT_S = 0.002


class Found(NamedTuple):
    """A file that a pattern names."""

    path: str
    file_id: FileId
    mtime_ns: int
    name: str = ""
    """The path by which the pattern names it, where links lead from there to ``path``."""


def is_named(pattern: str, path: str) -> bool:
    """Whether a path or glob names a path, that of a file which exists or not."""
    return pattern == path or _is_matched(pattern.split(os.sep), path.split(os.sep))


def _is_matched(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_is_matched(pattern[1:], path[start:]) for start in range(len(path) + 1))
    first, *rest = path or [""]
    return bool(path) and fnmatch.fnmatchcase(first, pattern[0]) and _is_matched(pattern[1:], rest)


def expand(pattern: str, on_error: Callable[[str, OSError], None]) -> list[Found]:
    """Return the files that a path or glob names now, in the order of their names.

    A path that exists is taken as it is, even if it looks like a glob. What cannot be read or
    is not a regular file is handed to ``on_error`` with its path; what vanished meanwhile is left
    out.
    """
    paths = [pattern] if os.path.lexists(pattern) else sorted(glob.glob(pattern, recursive=True))
    found = []
    for path in paths:
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            on_error(path, error)
            continue
        if stat.S_ISREG(facts.st_mode):
            found.append(Found(path, file_id(facts), facts.st_mtime_ns))
        else:
            on_error(path, OSError(errno.EINVAL, "not a regular file", path))
    return found


def siblings(directory: str, accept: Callable[[str], bool]) -> list[Sibling]:
    """Return the files of a directory whose names are accepted; none when it does not exist.

    The listing is of one moment: a rotation renames several files in a row, and a listing that runs
    meanwhile may miss one, which would then be taken for lost. So only one that holds still counts.

    Raises:
        OSError: the directory cannot be read, or does not hold still.
    """
    for _ in range(_STABLE_TRIES):
        try:
            changed_ns = os.stat(directory).st_mtime_ns
            first, second = _list(directory, accept), _list(directory, accept)
            unchanged = changed_ns == os.stat(directory).st_mtime_ns
        except FileNotFoundError:
            return []
        if unchanged and _identities(first) == _identities(second):
            return second
        time.sleep(_STABLE_WAIT_S)
    raise OSError(errno.EAGAIN, "the directory keeps changing while it is listed", directory)


def _list(directory: str, accept: Callable[[str], bool]) -> list[Sibling]:
    found = []
    for name in filter(accept, os.listdir(directory)):
        path = os.path.join(directory, name)
        try:
            facts = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(facts.st_mode):
            found.append(Sibling(name, path, file_id(facts), facts.st_size, facts.st_mtime_ns))
    return found


def _identities(files: list[Sibling]) -> set[tuple[str, FileId]]:
    return {(file.name, file.file_id) for file in files}
