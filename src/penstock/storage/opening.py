"""From a URL or path to the storage behind it."""

from __future__ import annotations

import os
import re

from penstock.errors import ConfigError
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage

__all__ = ["local_root", "open_storage"]

# A colon before the first slash: Hadoop takes no relative path with one, so this is a scheme.
_SCHEME = re.compile(r"([^/]*):")


def open_storage(url: str | os.PathLike[str]) -> Storage:
    """Open the storage under a path, a ``file:`` URL, or any fsspec URL with exclusive create.

    URLs are taken as Spark takes them: ``%`` stands for itself. Drivers of object stores take
    credentials and endpoints from their environment, so that no URL holds a secret.

    Raises ConfigError at once when the URL is not understood, its driver is not installed, the
    place cannot be written, or the store cannot create a file exclusively.
    """
    root = local_root(url)
    if root is not None:
        return LocalStorage(root)
    scheme, rest = _split(os.fspath(url))
    if not rest.startswith("//"):
        raise _refusal(
            url, "has a colon but no '://'", f"write {scheme}://..., or ./... for a relative path"
        )
    # Imported here because fsspec takes longer to load than a whole local program of ours.
    from penstock.storage.remote import FsspecStorage

    return FsspecStorage(f"{scheme}:{rest}")


def local_root(url: str | os.PathLike[str]) -> str | None:
    """Return the folder that a path or ``file:`` URL means, None for a URL of another scheme.

    Raises ConfigError when the URL is not understood.
    """
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text:
        raise _refusal(
            url, "is not a path or URL", "give a folder, or a URL such as s3://bucket/path"
        )
    scheme, rest = _split(text)
    if scheme is None:
        return text
    return _local_path(rest, url) if scheme == "file" else None


def _split(text: str) -> tuple[str | None, str]:
    """Return the scheme, None for a path, and what follows its colon."""
    found = _SCHEME.match(text)
    return (None, text) if found is None else (found[1].lower(), text[found.end() :])


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
