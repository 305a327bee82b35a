"""Which pickles may be read: reading a pickle runs code that its writer chose.

The rule: a pickle is read from a file that belongs to this user or root and that no other user may
write, in a folder of which the same is true.

The file is checked where it is open. Only root can give a file away, so its content is this user's
wherever it lies: another user who can exchange a folder above it can put only files of their own
there, which are refused. On HDFS, where the same holds, the folder is therefore not checked.
Object stores have their own access control: write access to them means code execution.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from penstock.errors import ConfigError
from penstock.storage.urls import HDFS_SCHEMES, local_root, split_url

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_trusted(url: str, way_out: str = "") -> None:
    """Refuse a folder, or a file and its folder, that another user could have written.

    What does not exist yet passes, as do URLs of object stores.

    Args:
        url: a path, or a URL as ``Storage.url`` and ``Storage.uri`` give it.
        way_out: the alternative to trusting it, for the error.

    Raises:
        ConfigError: another user could have written there.
    """
    path = local_root(url)
    if path is not None and os.path.exists(path):
        check_trusted_file(os.path.abspath(path), os.stat(path), way_out)
    elif split_url(url)[0] in HDFS_SCHEMES:
        from penstock.storage.hdfs import HdfsStorage

        HdfsStorage.attach(url).check_owner()


def check_trusted_file(path: str, status: os.stat_result, way_out: str = "") -> None:
    """Refuse an absolute path that has that status, as ``check_trusted`` does."""
    if not stat.S_ISDIR(status.st_mode):
        folder = os.path.dirname(path)
        _check(folder, os.stat(folder), way_out)
    _check(path, status, way_out)


def check_trusted_owner(url: str, status: Any, user: str) -> None:
    """Refuse a file on HDFS that does not belong to ``user``, or that others may write."""
    found = f"owner {status.owner}, mode {status.permission:o}"
    if status.owner != user:
        command = f"hdfs dfs -chown {user} {url}"
        raise _refusal(url, found, "belongs to another user", command, f"run as {status.owner}")
    if status.permission & _OTHERS_WRITE:
        raise _refusal(url, found, "may be written by others", f"hdfs dfs -chmod go-w {url}", "")


def _check(path: str, status: os.stat_result, way_out: str) -> None:
    user, mode = os.geteuid(), stat.S_IMODE(status.st_mode)
    found = f"owner {status.st_uid}, mode {mode:o}"
    recursive = "-R " if stat.S_ISDIR(status.st_mode) else ""
    if status.st_uid not in (0, user):
        command = f"chown {recursive}{user} {path}"
        raise _refusal(path, found, "belongs to another user", command, way_out)
    if mode & _OTHERS_WRITE:
        command = f"chmod {recursive}go-w {path}"
        raise _refusal(path, found, "may be written by others", command, way_out)


def _refusal(path: str, found: str, what: str, command: str, way_out: str) -> ConfigError:
    hint = f"{command}, if you trust the content of {path}"
    return ConfigError(
        f"{path} {what} ({found}), and reading pickles there runs code",
        operation="check who may write",
        path=path,
        hint=f"{hint}; or {way_out}" if way_out else hint,
    )
