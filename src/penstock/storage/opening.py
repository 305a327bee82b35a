"""From a URL or path to the storage behind it."""

from __future__ import annotations

import os

from penstock.errors import ConfigError
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage
from penstock.storage.urls import local_root, split_url, url_refusal

__all__ = ["attach_storage", "open_existing", "open_storage"]


def open_storage(url: str | os.PathLike[str], *, private: bool = False) -> Storage:
    """Open the storage under a path, a ``file:`` URL, or any fsspec URL with exclusive create.

    URLs are taken as Spark takes them: ``%`` stands for itself. Drivers of object stores take
    credentials and endpoints from their environment, so that no URL holds a secret. Opened as
    ``private``, a folder that is made is this user's alone, too; see ``Storage.private``.

    Raises ConfigError at once when the URL is not understood, its driver is not installed, the
    place cannot be written, or the store cannot create a file exclusively.
    """
    root = local_root(url)
    if root is not None:
        return LocalStorage(root, private=private)
    # Imported here because fsspec takes longer to load than a whole local program of ours.
    from penstock.storage.remote import FsspecStorage

    return FsspecStorage(_remote_url(url))


def attach_storage(url: str | os.PathLike[str]) -> Storage:
    """Open a storage as ``open_storage`` does, but write nothing and send no request.

    For what only reads: it needs no permission to write, and leaves nothing behind.

    Raises ConfigError when the URL is not understood or its driver is not installed.
    """
    root = local_root(url)
    if root is not None:
        return LocalStorage.attach(os.path.abspath(root))
    from penstock.storage.remote import FsspecStorage

    return FsspecStorage.attach(_remote_url(url))


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


def _remote_url(url: str | os.PathLike[str]) -> str:
    scheme, rest = split_url(os.fspath(url))
    if not rest.startswith("//"):
        raise url_refusal(
            url, "has a colon but no '://'", f"write {scheme}://..., or ./... for a relative path"
        )
    return f"{scheme}:{rest}"
