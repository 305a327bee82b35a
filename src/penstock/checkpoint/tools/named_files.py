"""The files that logs of Spark name: those that file sources have read, and file sinks written.

Spark names a file by its URI, with percent-encoding: ``a%20b`` is the file ``a b``, and never one
of the name ``a%20b``. The folder is as the query sees it: a file that was moved is not there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote, unquote_to_bytes

from penstock.errors import ConfigError
from penstock.storage import Storage, local_root
from penstock.storage.urls import split_url

__all__ = ["files_outside", "local_path"]

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's schemes of a store that fsspec knows by another one."""


def local_path(uri: str) -> str | None:
    """Return the path of a file on this machine; None for one elsewhere, or no absolute path."""
    try:
        root = local_root(uri)
    except ConfigError:
        return None
    if root is None or not os.path.isabs(root):
        return None
    return os.fsdecode(unquote_to_bytes(root))


def files_outside(storage: Storage, uris: Sequence[str]) -> list[str]:
    """Return the files that are not in a folder, or do not exist; without those of other stores.

    Raises:
        StorageError: the folder cannot be listed.
    """
    if (root := local_root(storage.url)) is not None:
        inside = os.path.join(os.path.realpath(root), "")
        paths = {uri: path for uri in uris if (path := local_path(uri)) is not None}
        return [uri for uri, path in paths.items() if not _is_in(inside, path)]
    prefix = os.path.join(_spelled(storage.url), "")
    paths = {uri: path for uri in uris if (path := unquote(_spelled(uri))).startswith(prefix)}
    known = set(storage.find()) if paths else set()
    return [uri for uri, path in paths.items() if path.removeprefix(prefix) not in known]


def _is_in(folder: str, path: str) -> bool:
    return os.path.exists(path) and os.path.realpath(path).startswith(folder)


def _spelled(url: str) -> str:
    scheme, rest = split_url(url)
    return f"{_SAME_SCHEME.get(scheme or '', scheme)}:{rest}"
