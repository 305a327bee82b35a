"""Places that a command looks at without writing there."""

from __future__ import annotations

import os

from penstock.errors import ConfigError
from penstock.storage import Storage, attach_storage
from penstock.storage.urls import local_root

__all__ = ["open_existing"]


def open_existing(path: str, *, operation: str, hint: str) -> Storage:
    """Open a folder that must be there, or a URL.

    Raises:
        ConfigError: there is no such folder, or a file stands there, or the URL is not understood;
            ``hint`` says which one to give.
    """
    root = local_root(path)
    if root is not None and not os.path.isdir(root):
        what = f"{root} is a file" if os.path.exists(root) else f"there is no folder {root}"
        raise ConfigError(what, operation=operation, path=path, hint=hint)
    return attach_storage(path)
