"""Where a file of a storage lies on this machine, for what only a local file system can do."""

from __future__ import annotations

from penstock.storage import Storage

__all__ = ["local_path"]


def local_path(storage: Storage, path: str) -> str | None:
    """Return the path in the local file system, or None when the storage is not there."""
    scheme, _, rest = storage.uri(path).partition("://")
    return rest if scheme == "file" else None
