"""From a URL or path to the storage behind it."""

from __future__ import annotations

import os
import re

from penstock.errors import ConfigError
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage

__all__ = ["open_storage"]

# A colon before the first slash: Hadoop takes no relative path with one, so this is a scheme.
_SCHEME = re.compile(r"([^/]*):")


def open_storage(url: str | os.PathLike[str]) -> Storage:
    """Open the storage under a path, a ``file:`` URL, or any fsspec URL with exclusive create.

    URLs are taken as Spark takes them: ``%`` stands for itself. Drivers of object stores take
    credentials and endpoints from their environment, so that no URL holds a secret.

    Raises ConfigError at once when the URL is not understood, its driver is not installed, the
    place cannot be written, or the store cannot create a file exclusively.
    """
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text:
        raise _refusal(
            url, "is not a path or URL", "give a folder, or a URL such as s3://bucket/path"
        )
    found = _SCHEME.match(text)
    if found is None:
        return LocalStorage(text)
    scheme, rest = found[1].lower(), text[found.end() :]
    if scheme == "file":
        return LocalStorage(_local_path(rest, url))
    if not rest.startswith("//"):
        raise _refusal(
            url, "has a colon but no '://'", f"write {scheme}://..., or ./... for a relative path"
        )
    # Imported here because fsspec takes longer to load than a whole local program of ours.
    from penstock.storage.remote import FsspecStorage

    return FsspecStorage(f"{scheme}:{rest}")


def _local_path(rest: str, url: object) -> str:
    """Return the path of a ``file:`` URL, given what follows ``file:``."""
    if not rest.startswith("//"):
        rest = f"//{rest}"  # Hadoop's short form, file:/path
    host, slash, path = rest[2:].partition("/")
    if host not in ("", "localhost") or not slash:
        raise _refusal(url, "names a host or a relative path", "write file:///absolute/path")
    return slash + path


def _refusal(url: object, what: str, hint: str) -> ConfigError:
    return ConfigError(f"storage URL {url!r} {what}", operation="open storage", hint=hint)
