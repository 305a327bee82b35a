"""Parses URLs and paths: the scheme and the local folder."""

from __future__ import annotations

import os
import re

from penstock.errors import ConfigError
from penstock.model import shown

HDFS_SCHEMES = ("hdfs", "viewfs")
# A colon before the first slash: Hadoop refuses relative paths with one, so this is a scheme.
_SCHEME = re.compile(r"([^/]*):")


def local_root(url: str | os.PathLike[str]) -> str | None:
    """Return the folder of a path or ``file:`` URL, None for a URL of another scheme.

    Raises ConfigError if the URL cannot be parsed.
    """
    text = os.fspath(url) if isinstance(url, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text:
        raise url_refusal(
            url, "is not a path or URL", "give a folder, or a URL such as s3://bucket/path"
        )
    scheme, rest = split_url(text)
    if scheme is None:
        return text
    return _local_path(rest, url) if scheme == "file" else None


def split_url(text: str) -> tuple[str | None, str]:
    """Return the scheme of a URL (None for a path), and the part after its colon."""
    found = _SCHEME.match(text)
    return (None, text) if found is None else (found[1].lower(), text[found.end() :])


def _local_path(rest: str, url: object) -> str:
    """Return the path of a ``file:`` URL, given the part after ``file:``."""
    if not rest.startswith("//"):
        rest = f"//{rest}"  # Hadoop's short form, file:/path
    host, slash, path = rest[2:].partition("/")
    if host not in ("", "localhost") or not slash:
        raise url_refusal(url, "names a host or a relative path", "write file:///absolute/path")
    return slash + path


def url_refusal(url: object, what: str, hint: str) -> ConfigError:
    """Return the error of a URL that cannot be parsed."""
    return ConfigError(f"storage URL {shown(url)} {what}", operation="open storage", hint=hint)
