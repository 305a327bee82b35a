r"""Checksums of the log files, in sidecars beside them, as Hadoop's local file system keeps them.

Spark's text format has no checksum, so a flipped digit in an offset would read as another offset.
On a local file system, Hadoop writes a hidden ``.NAME.crc`` beside each file NAME that Spark
writes. penstock writes the same sidecars, and its reads check both kinds. Other stores have their
own checksums, and get no sidecar (as under Hadoop).

Format: ``crc\0``, 512 as a big-endian int32 (bytes per chunk), then the CRC-32 of each chunk of
512 bytes as a big-endian int32.

Invariants (docs/adr/0002-checksums-of-log-files.md says why and what they cost):

1. A sidecar never makes a correct file unreadable, whatever dies when. A stale sidecar is removed
   before a file is created; only the creator of the file writes the new one, after the file; a
   delete removes the sidecar first.
2. A sidecar is not fsynced, because it protects against later bit rot only. So a file is read
   unchecked if it has no sidecar, or a sidecar that is empty or all zeros (possible after a power
   cut).
3. Any other sidecar that does not match its file is an error.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress

from penstock.checkpoint.local_files import local_path
from penstock.checkpoint.log_format import MalformedLogError
from penstock.errors import NotFoundError
from penstock.storage import Storage

BYTES_PER_CHUNK = 512
_HEADER = b"crc\0" + struct.pack(">i", BYTES_PER_CHUNK)

_logger = logging.getLogger(__name__)


def sidecar_name(name: str) -> str:
    """Return the name of the file that holds the checksum of the file ``name``."""
    return f".{name}.crc"


def checksum_of(data: bytes) -> bytes:
    """Return the content of the sidecar of a file that holds ``data``."""
    chunks = range(0, len(data), BYTES_PER_CHUNK)
    sums = [zlib.crc32(data[start : start + BYTES_PER_CHUNK]) for start in chunks]
    return _HEADER + struct.pack(f">{len(sums)}I", *sums)


class ChecksummedFiles:
    """The files of a storage, with checksums on a local file system."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def create(self, path: str, data: bytes) -> None:
        """Create a file exclusively; raises as Storage.create."""
        sidecar = self._sidecar(path)
        if sidecar is not None and not self._storage.exists(path):
            _remove(sidecar)
        self._storage.create(path, data)
        if sidecar is not None:
            _write_sidecar(sidecar, checksum_of(data))

    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises MalformedLogError if it does not match its checksum, otherwise as Storage.read.
        """
        data = self._storage.read(path)
        sidecar = self._sidecar(path)
        if sidecar is not None and not _fits(self._read_sidecar(path), data):
            raise MalformedLogError(
                "the file does not match its checksum: one of the two was altered",
                hint="restore the file from a backup; if it was edited by hand and is correct,"
                f" remove its checksum file {sidecar}",
            )
        return data

    def delete(self, path: str) -> None:
        """Remove a file if it exists; raises as Storage.delete."""
        self.delete_all([path])

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files if they exist; raises as Storage.delete_all."""
        for path in paths:
            sidecar = self._sidecar(path)
            if sidecar is not None:
                _remove(sidecar)
        self._storage.delete_all(paths)

    def _sidecar(self, path: str) -> str | None:
        return local_path(self._storage, _beside(path))

    def _read_sidecar(self, path: str) -> bytes:
        try:
            return self._storage.read(_beside(path))
        except NotFoundError:
            return b""


def _beside(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return folder + slash + sidecar_name(name)


def _fits(sidecar: bytes, data: bytes) -> bool:
    return not any(sidecar) or sidecar == checksum_of(data)


def _remove(sidecar: str) -> None:
    # A sidecar that cannot be removed matters only if its file cannot be created either.
    with suppress(OSError):
        os.unlink(sidecar)


def _write_sidecar(sidecar: str, content: bytes) -> None:
    """Write a checksum; a failure is not an error, because the file itself is durable already."""
    try:
        # One write of a few bytes: a kill leaves all of it or an empty file.
        with open(sidecar, "xb", buffering=0) as file:  # an existing link is not followed
            written = file.write(content)
    except OSError as error:
        _give_up(sidecar, error)
    else:
        if written != len(content):
            _give_up(sidecar, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def _give_up(sidecar: str, error: OSError) -> None:
    _logger.warning("A log file has no checksum and is read unchecked (%s): %s", sidecar, error)
    _remove(sidecar)
