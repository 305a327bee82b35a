"""Places that commands are given: opened without touching them."""

from __future__ import annotations

import os

from penstock.errors import ConfigError
from penstock.storage import Storage, open_storage
from penstock.storage.local import LocalStorage

__all__ = ["open_place"]


def open_place(path: str, operation: str, hint: str) -> Storage:
    """Open the storage at a path or URL that is there.

    Raises:
        ConfigError: there is no such folder; carries the operation and the hint.
    """
    local = path.removeprefix("file://")
    if "://" in local:
        return open_storage(path)
    if not os.path.isdir(local):
        raise ConfigError(f"there is no folder {local}", operation=operation, path=path, hint=hint)
    # Not open_storage, which tries the place out by writing to it.
    return LocalStorage.attach(os.path.abspath(local))
