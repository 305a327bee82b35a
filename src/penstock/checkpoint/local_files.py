"""Local paths of a storage's files, for features that only a local file system has."""

from __future__ import annotations

from penstock.storage import Storage


def local_path(storage: Storage, path: str) -> str | None:
    """Return the path in the local file system, or None if the storage is not local."""
    scheme, _, rest = storage.uri(path).partition("://")
    return rest if scheme == "file" else None
