"""Snapshots: all state of a partition in one file, which begins as an SQLite database.

Writing and reading a snapshot each cost a copy of the database. No row is read.
"""

from __future__ import annotations

import mmap
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import LocalCopyError
from penstock.state.database import Database
from penstock.state.state_file import encode_footer

__all__ = ["snapshot_content"]

_PIECE_BYTES = 8 << 20


@contextmanager
def snapshot_content(database: Database, until_ms: int) -> Iterator[mmap.mmap]:
    """Yield the bytes of a snapshot of a database that does not change meanwhile.

    They are mapped from a file on the database's disk, so they use no memory.

    Raises:
        LocalCopyError: that disk is full or fails.
    """
    path = f"{database.path}.{secrets.token_hex(4)}.snapshot"
    try:
        _write(database, until_ms, path)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as all:
            yield all
    finally:
        if os.path.exists(path):
            os.unlink(path)


def _write(database: Database, until_ms: int, path: str) -> None:
    facts = {"until_ms": until_ms, "keys": database.origin.keys}
    try:
        shutil.copyfile(database.path, path)
        with open(path, "r+b") as file:
            size = crc = 0
            while piece := file.read(_PIECE_BYTES):
                size += len(piece)
                crc = zlib.crc32(piece, crc)
            file.write(encode_footer("snapshot", facts, {"database": (size, crc)}))
    except OSError as error:
        raise LocalCopyError(
            "a snapshot of state cannot be prepared on the local disk",
            operation="make snapshot",
            path=path,
            hint="check that the disk of spark.local.dir has free space and works",
        ) from error
