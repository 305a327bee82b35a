"""Opens the storage of a URL or path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage
from penstock.storage.urls import HDFS_SCHEMES, local_root, split_url, url_refusal

if TYPE_CHECKING:
    from penstock.storage.hdfs import HdfsStorage


def open_storage(
    url: str | os.PathLike[str], *, private: bool = False, log_writes: bool = False
) -> Storage:
    """Open the storage under a path, or a URL of HDFS or of an fsspec store with exclusive create.

    URLs are interpreted as in Spark: ``%`` is an ordinary character. Drivers of object stores take
    credentials and endpoints from their environment, so that no URL contains a secret. With
    ``private``, only this user can access a folder that is created; see ``Storage.private``. With
    ``log_writes``, each file that is created is logged at INFO.

    Raises ConfigError at once if the URL cannot be parsed, its driver is not installed, the
    location cannot be written to, or the store cannot create a file exclusively.
    """
    root = local_root(url)
    if root is not None:
        return LocalStorage(root, private=private, log_writes=log_writes)
    url = _remote_url(url)
    if split_url(url)[0] in HDFS_SCHEMES:
        return _hdfs_storage(url)(url, private=private, log_writes=log_writes)
    # Imported here because fsspec takes longer to load than a whole local penstock program.
    from penstock.storage.remote import FsspecStorage

    return FsspecStorage(url, log_writes=log_writes)


def attach_storage(url: str | os.PathLike[str]) -> Storage:
    """Open a storage as ``open_storage`` does, but write nothing and send no request.

    For readers: it needs no permission to write, and creates nothing.

    Raises ConfigError if the URL cannot be parsed or its driver is not installed.
    """
    root = local_root(url)
    if root is not None:
        return LocalStorage.attach(os.path.abspath(root))
    url = _remote_url(url)
    if split_url(url)[0] in HDFS_SCHEMES:
        return _hdfs_storage(url).attach(url)
    from penstock.storage.remote import FsspecStorage

    return FsspecStorage.attach(url)


def open_existing(path: str, *, operation: str, hint: str) -> Storage:
    """Open a folder that must be there, or a URL, to read only: see ``attach_storage``.

    Raises:
        ConfigError: there is no such folder, or a file stands there, or the URL is not understood;
            ``hint`` says which one to give.
    """
    root = local_root(path)
    if root is not None and not os.path.isdir(root):
        what = f"{root} is a file" if os.path.exists(root) else f"there is no folder {root}"
        raise ConfigError(what, operation=operation, path=path, hint=hint)
    return attach_storage(path)


def _hdfs_storage(url: str) -> type[HdfsStorage]:
    try:
        from penstock.storage.hdfs import HdfsStorage
    except ImportError as error:
        raise url_refusal(url, "needs what is not installed", "pip install hdfs-native") from error
    return HdfsStorage


def _remote_url(url: str | os.PathLike[str]) -> str:
    scheme, rest = split_url(os.fspath(url))
    if not rest.startswith("//"):
        raise url_refusal(
            url, "has a colon but no '://'", f"write {scheme}://..., or ./... for a relative path"
        )
    return f"{scheme}:{rest}"
