"""Whether pickles may be read from a path: reading a pickle runs code that its writer chose.

A path is trusted if only this user and root can change its content, as sshd's StrictModes requires:

- The folder or file belongs to this user or root, and no other user can write to it.
- The same applies to each folder above it, with two exceptions: a folder with the sticky bit
  (``/tmp``), where only the owner of an entry can replace it, and a folder that only the user's
  private group can write to (a group with the user's name and no other member, as umask 002
  expects).
- The same applies to each symbolic link in the path, and to the folders on the path to its target.

On HDFS only a superuser can give a file away, so one that belongs to this user and that no other
user can write to is trusted in any folder. Object stores have their own access control: write
access to them means code execution.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Any

from penstock.errors import ConfigError
from penstock.storage.urls import HDFS_SCHEMES, local_root, split_url

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40


def check_trusted(url: str, way_out: str = "") -> None:
    """Refuse a local folder in which another user could have created a pickle.

    A folder that does not exist yet is trusted, as are URLs of object stores.

    Args:
        url: a path, or a URL as ``Storage.url`` gives it.
        way_out: the alternative to trusting it, for the error.

    Raises:
        ConfigError: another user could have written there.
    """
    root = local_root(url)
    if root is not None and os.path.exists(root):
        check_trusted_path(root, way_out)
    elif split_url(url)[0] in HDFS_SCHEMES:
        from penstock.storage.hdfs import HdfsStorage

        HdfsStorage.attach(url).check_owner()


def check_trusted_path(path: str, way_out: str = "") -> None:
    """Refuse a local folder or file as ``check_trusted`` does.

    Raises:
        OSError: it does not exist, or cannot be reached.
    """
    path = os.path.abspath(path)
    check_trusted_file(path, os.stat(path), way_out)
    for step, status in _steps(path):
        if problem := _owner_problem(status, is_above=True) or _parent_problem(status):
            what, fix = problem
            raise _refusal(path, f"lies under {step}, which {what}", fix.format(step), way_out)


def check_trusted_file(path: str, status: os.stat_result, way_out: str = "") -> None:
    """Refuse a file or folder of that status, unless this user and root alone can write it.

    Raises:
        ConfigError: another user can.
    """
    if problem := _owner_problem(status) or _write_problem(status):
        what, fix = problem
        raise _refusal(path, what, fix.format(path), way_out)


def check_trusted_owner(url: str, status: Any, user: str) -> None:
    """Refuse a file on HDFS that does not belong to ``user``, or that others can write to."""
    if status.owner != user:
        what, command = f"belongs to user {status.owner}", f"hdfs dfs -chown {user} {url}"
        raise _refusal(url, what, command, f"run as {status.owner}")
    if status.permission & _OTHERS_WRITE:
        raise _refusal(url, "can be written by other users", f"hdfs dfs -chmod go-w {url}", "")


def is_beyond_reach(path: str) -> bool:
    """Whether no other user can create a folder at that path, even when this one is removed.

    Stricter than ``check_trusted_path``: no folder above may have the sticky bit instead, as
    ``/tmp`` has. Raises OSError if the path does not exist, or cannot be reached.
    """
    steps = (status for _, status in _steps(os.path.abspath(path)))
    return not any(
        _owner_problem(status, is_above=True) or _parent_problem(status, may_be_sticky=False)
        for status in steps
    )


def _steps(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each folder and link on an absolute path, from the root down to the path itself."""
    at, names, links = "/", path.split("/")[::-1], 0
    yield at, os.lstat(at)
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        step = os.path.join(at, name)
        status = os.lstat(step)
        yield step, status
        if not stat.S_ISLNK(status.st_mode):
            at = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(step)
        if target.startswith("/"):
            at = "/"
        names += target.split("/")[::-1]


_Problem = tuple[str, str]
"""What is wrong, and how to fix it (``{}`` is the path)."""


def _owner_problem(status: os.stat_result, *, is_above: bool = False) -> _Problem | None:
    if status.st_uid in (0, os.geteuid()):
        return None
    # Entries below the checked folder usually have the same owner; those beside it may not.
    all_below = stat.S_ISDIR(status.st_mode) and not is_above
    command = f"chown {'-R ' if all_below else ''}{os.geteuid()} {{}}"
    return f"belongs to user {status.st_uid}", command


def _write_problem(status: os.stat_result) -> _Problem | None:
    if not status.st_mode & _OTHERS_WRITE:
        return None
    command = "chmod -R go-w {}" if stat.S_ISDIR(status.st_mode) else "chmod go-w {}"
    return "can be written by other users", command


def _parent_problem(status: os.stat_result, *, may_be_sticky: bool = True) -> _Problem | None:
    mode = status.st_mode
    if not stat.S_ISDIR(mode) or not mode & _OTHERS_WRITE:
        return None  # the mode of a link has no effect
    if may_be_sticky and mode & stat.S_ISVTX:
        return None
    if not mode & stat.S_IWOTH and _is_private_group(status.st_gid):
        return None
    return "can be written by other users", "chmod go-w {}"


def _is_private_group(gid: int) -> bool:
    """Whether a group has this user's name, and no member except this user and root."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    own = {user.pw_name, "root"}
    if group.gr_name not in own or not own.issuperset(group.gr_mem):
        return False
    return all(other.pw_gid != gid or other.pw_name in own for other in pwd.getpwall())


def _refusal(path: str, what: str, fix: str, way_out: str) -> ConfigError:
    hint = f"{fix}, if you trust the content of {path}"
    return ConfigError(
        f"{path} {what}, and reading pickles there runs code",
        operation="check who can write",
        path=path,
        hint=f"{hint}; or {way_out}" if way_out else hint,
    )
