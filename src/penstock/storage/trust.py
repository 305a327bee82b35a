"""Whether pickles may be read from a folder: reading one runs whatever code its writer wished."""

from __future__ import annotations

import os
import stat

from penstock.errors import ConfigError

__all__ = ["check_trusted"]


def check_trusted(url: str) -> None:
    """Refuse a local folder in which someone else could have put a pickle.

    It must be the user's own (or root's), and no one else may write it; one that is not there yet
    is trusted. On object stores the store's own access control is all there is: write access is
    code execution.

    Args:
        url: a path, or a URL as ``Storage.url`` gives it.

    Raises:
        ConfigError: someone else could have written there.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme != "file":
        return
    path = rest if separator else url
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    if status.st_uid not in (0, os.geteuid()):
        raise _refusal(path, "belongs to another user", "use a folder of your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _refusal(path, "can be written by others", f"run: chmod go-w {path}")


def _refusal(path: str, why: str, hint: str) -> ConfigError:
    return ConfigError(
        f"pickles are not read from a folder that {why}, because reading one runs its code",
        operation="check folder",
        path=path,
        hint=hint,
    )
