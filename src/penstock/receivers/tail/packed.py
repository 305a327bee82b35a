"""Rotated files that were compressed: they are not read, but it is known what they hold."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable
from typing import Any

from penstock.receivers.tail.follow import (
    FINGERPRINT_BYTES,
    Mark,
    as_stored,
    fingerprint,
    is_rotated_name,
)

LARGEST_PACKED_BYTES = 64 << 20
"""Larger ones are not looked into: that would hold up the other files."""

_OPEN: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
_CHUNK_BYTES = 1 << 20


def is_packed_name(base: str, name: str) -> bool:
    """Whether ``name`` is what ``base`` may be called after a rotation with compression."""
    stem, ending = os.path.splitext(name)
    return ending in _OPEN and (stem == base or is_rotated_name(base, stem))


def packed_size(path: str, mark: Mark) -> int | None:
    """Return how many bytes a compressed file holds, if it begins with those that are stored."""
    count = min(mark.offset, FINGERPRINT_BYTES)
    try:
        with _OPEN[os.path.splitext(path)[1]](path) as file:
            head = file.read(count)
            file.seek(mark.offset - count)
            if fingerprint(*as_stored(mark, head, file.read(count))) != mark.crc:
                return None
            size = mark.offset
            while chunk := file.read(_CHUNK_BYTES):
                size += len(chunk)
            return size
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return None  # it is being written, or damaged
