"""The files that logs of Spark name: those that file sources have read, and file sinks written.

Spark names a file by its URI, with percent-encoding: ``a%20b`` is the file ``a b``, and never one
of the name ``a%20b``. The folder is as the query sees it: a file that was moved is not there, on
whatever store.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import unquote, unquote_to_bytes

from penstock.errors import ConfigError
from penstock.storage import Storage, local_root
from penstock.storage.urls import split_url

__all__ = ["files_outside", "local_path"]

_STORES = {
    "s3": "s3", "s3a": "s3", "s3n": "s3",
    "gs": "gs", "gcs": "gs",
    "abfs": "azure", "abfss": "azure", "wasb": "azure", "wasbs": "azure", "az": "azure",
    "hdfs": "hdfs", "webhdfs": "hdfs", "swebhdfs": "hdfs",
    "file": "file", "memory": "memory",
}  # fmt: skip
"""The store that a scheme of Hadoop's or fsspec's stands for."""


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
    """Return the files that are not in a folder, or do not exist.

    Those of a store that only Hadoop knows are left out: by which URL it is read here is not known.

    Raises:
        StorageError: the folder cannot be listed.
    """
    known = [uri for uri in uris if _store(uri) is not None]
    if (root := local_root(storage.url)) is not None:
        inside = os.path.join(os.path.realpath(root), "")
        return [uri for uri in known if not _is_in(inside, local_path(uri))]
    folder = os.path.join(_place(storage.url), "")
    places = {uri: unquote(_place(uri)) for uri in known}
    is_any_there = any(place.startswith(folder) for place in places.values())
    held = {f"{folder}{path}" for path in storage.find()} if is_any_there else set()
    return [uri for uri, place in places.items() if place not in held]


def _is_in(folder: str, path: str | None) -> bool:
    return path is not None and os.path.exists(path) and os.path.realpath(path).startswith(folder)


def _store(url: str) -> str | None:
    """Return the store that a URL is of; None for one that only Hadoop knows, and no whole URL."""
    return "file" if url.startswith("/") else _STORES.get(split_url(url)[0] or "")


def _place(url: str) -> str:
    """Return a URL as it is the same for Hadoop and fsspec: store, bucket and path."""
    store, rest = _store(url), split_url(url)[1].removeprefix("//")
    authority, slash, path = rest.partition("/")
    bucket = "" if store == "hdfs" else authority.partition("@")[0]
    return f"{store}:{bucket}{slash}{path}"
