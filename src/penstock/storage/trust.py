"""Whether pickles may be read from a place: reading one runs whatever code its writer wished."""

from __future__ import annotations

import os
import stat

from penstock.errors import ConfigError
from penstock.storage.opening import local_root

__all__ = ["OTHERS_WRITE", "check_trusted", "check_trusted_path"]

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_trusted(url: str, way_out: str = "") -> None:
    """Refuse a local folder in which someone else could have put a pickle.

    It must be the user's own (or root's), and no one else may write it; one that is not there yet
    is trusted. On object stores the store's own access control is all there is: write access is
    code execution.

    Args:
        url: a path, or a URL as ``Storage.url`` gives it.
        way_out: what to do instead of trusting it, for the error.

    Raises:
        ConfigError: someone else could have written there.
    """
    root = local_root(url)
    if root is not None and os.path.exists(root):
        check_trusted_path(root, way_out)


def check_trusted_path(path: str, way_out: str = "") -> None:
    """Refuse a local folder or file as ``check_trusted`` does; it must be there."""
    status = os.stat(path)
    if status.st_uid not in (0, os.geteuid()):
        problem, mend = f"belongs to user {status.st_uid}", f"chown it to user {os.geteuid()}"
    elif status.st_mode & OTHERS_WRITE:
        problem, mend = "can be written by other users", f"chmod go-w {path}"
    else:
        return
    hint = f"{mend}, if you trust what is in it"
    raise ConfigError(
        f"{path} {problem}, and what is pickled there runs as code",
        operation="check who can write",
        path=path,
        hint=f"{hint}; or {way_out}" if way_out else hint,
    )
