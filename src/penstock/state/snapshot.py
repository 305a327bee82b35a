"""Snapshots: all state of a partition in one file, which holds an SQLite database.

Writing and reading a snapshot each cost a copy of the database. No row is read.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from penstock.errors import LocalCopyError
from penstock.state.database import Database
from penstock.state.state_file import BLOCK_BYTES, Section, encode_footer

__all__ = ["snapshot_content"]


@contextmanager
def snapshot_content(database: Database, until_ms: int, codec: str) -> Iterator[mmap.mmap]:
    """Yield the bytes of a snapshot of a database that does not change meanwhile.

    They are mapped from a file on the database's disk, so they use no memory.

    Raises:
        LocalCopyError: that disk is full or fails.
    """
    path = f"{database.path}.{secrets.token_hex(4)}.snapshot"
    try:
        _write(database, until_ms, codec, path)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as all:
            yield all
    finally:
        if os.path.exists(path):
            os.unlink(path)


def _write(database: Database, until_ms: int, codec: str, path: str) -> None:
    facts = {"until_ms": until_ms, "keys": database.origin.keys}
    section = Section()
    try:
        with open(database.path, "rb") as source, open(path, "xb") as file:
            while block := source.read(BLOCK_BYTES):
                packed = pa.Codec(codec).compress(block, asbytes=True)
                section = section.and_block(packed, len(block))
                file.write(packed)
            file.write(encode_footer("snapshot", facts, {"database": section}, codec))
    except OSError as error:
        raise LocalCopyError(
            "a snapshot of state cannot be prepared on the local disk",
            operation="make snapshot",
            path=path,
            hint="check that the disk of spark.local.dir has free space and works",
        ) from error
