"""Copies of partitions' state on an executor's local disk, for tasks to read.

A Python worker is no place for a cache: the next task of a partition lands on any worker, and two
attempts of one task may run at once. So the copy is a file, and who uses it holds its lock.

Invariants:

1. A copy only ever moves to versions that the driver has published, and only forward: it never
   holds what an attempt computed, so nothing in it is to be taken back, whatever dies.
2. Whoever holds the lock has the copy to himself until he lets go. Who does not get it in time, or
   needs a version that the copy is past, makes a private copy, which ends with its use.
3. A copy that is damaged is removed; the next use makes it again from the storage.

The folder is the executor's own (Spark removes it with the executor), so a copy does not outlive a
power cut, after which what was not synced may be lost. One run of the driver uses one folder, so a
copy does not outlive a checkpoint location that was taken back to an earlier version either.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache

from penstock.errors import LocalCopyError
from penstock.state.database import Database, Origin, remove_database
from penstock.state.delta import open_changes, open_delta, read_changes
from penstock.state.layers import SNAPSHOT, Layer, catch_up
from penstock.state.layout import parse_name
from penstock.state.state_file import open_file
from penstock.storage import Storage, posix

__all__ = ["local_folder", "open_copy", "private_database"]

_PATIENCE_S = 5.0
_LOOK_S = 0.02
_PIECE_BYTES = 8 << 20


def local_folder(run: str, operator: str, partition: int) -> str:
    """Return the folder of a partition's copy on this executor, for a run of the driver."""
    # What Spark gives its Python workers for their spills: one of several disks for a partition.
    places = os.environ.get("SPARK_LOCAL_DIRS") or _folder_of_this_process()
    disks = places.split(",")
    return os.path.join(disks[partition % len(disks)], "penstock-state", run, operator)


@contextmanager
def open_copy(
    storage: Storage, folder: str, local: str, partition: int, tip: str | None
) -> Iterator[Database]:
    """Open a copy of the version that ends with delta ``tip``; None: of empty state.

    Args:
        storage: holds the state.
        folder: the partition's folder in it.
        local: the folder of the copy.
        partition: the partition's number.
        tip: the name of the version's newest delta.

    Raises:
        MissingStateError, DamagedStateError: files of the version are missing or damaged.
        LocalCopyError: the local disk is full or fails.
    """
    with _translated(local):
        os.makedirs(local, mode=0o700, exist_ok=True)
    path = os.path.join(local, f"{partition:05d}.sqlite")
    with _lock(f"{path}.lock") as locked:
        if locked:
            database = _shared(storage, folder, path, tip)
            if database is not None:
                yield from _used(database)
                return
    with private_database(local, partition) as database:
        yield _brought_to(storage, folder, database, tip)


@contextmanager
def private_database(local: str, partition: int) -> Iterator[Database]:
    """Make an empty database that ends with its use. Raises LocalCopyError."""
    with _translated(local):
        os.makedirs(local, mode=0o700, exist_ok=True)
    path = os.path.join(local, f"{partition:05d}.sqlite.{secrets.token_hex(4)}")
    try:
        with closing(Database(path)) as database:
            yield database
    finally:
        remove_database(path)


def _used(database: Database) -> Iterator[Database]:
    """Yield a database, close it, and remove it if it proved damaged."""
    with closing(database):
        try:
            yield database
        except LocalCopyError:
            remove_database(database.path)
            raise


def _shared(storage: Storage, folder: str, path: str, tip: str | None) -> Database | None:
    """Return the copy, brought to the version; None when it is past that."""
    try:
        database = Database(path)
    except LocalCopyError:  # damaged: the truth is in the storage
        remove_database(path)
        database = Database(path)
    if _is_past(database.origin, tip):
        database.close()
        return None
    return _brought_to(storage, folder, database, tip)


def _is_past(origin: Origin, tip: str | None) -> bool:
    if origin.until_ms is None:
        return False
    name = parse_name(tip) if tip is not None else None
    return name is None or origin.until_ms > name.time_ms


def _brought_to(storage: Storage, folder: str, database: Database, tip: str | None) -> Database:
    """Return the database, brought to the version; it is closed if that fails."""
    try:
        if database.origin.tip != tip:
            assert tip is not None  # a copy of any version is past the empty one
            _advance(storage, folder, database, tip)
    except BaseException as error:
        database.close()
        if isinstance(error, LocalCopyError):
            remove_database(database.path)
        raise
    return database


def _advance(storage: Storage, folder: str, database: Database, tip: str) -> None:
    file, delta = open_delta(storage, f"{folder}/{tip}")
    layers = (*delta.layers, Layer(tip, delta.until_ms, 0, file.size("changes")))
    afresh, apply = catch_up(database.origin.until_ms, layers)
    if afresh and apply[0].rank == SNAPSHOT:
        _load_snapshot(storage, folder, apply[0], database)
        apply = apply[1:]
    opened = {tip: file}
    changes = (
        read_changes(opened.get(layer.name) or open_changes(storage, folder, layer.name))
        for layer in apply
    )
    database.advance(changes, Origin(tip, delta.until_ms, delta.keys, layers))


def _load_snapshot(storage: Storage, folder: str, layer: Layer, database: Database) -> None:
    source = open_file(storage, f"{folder}/{layer.name}", "snapshot")
    if source.facts["until_ms"] != layer.until_ms:
        source.damaged(f"it is of {source.facts['until_ms']} ms, not of {layer.until_ms} ms")
    database.load(source.pieces("database", _PIECE_BYTES))  # in pieces, as it may be large


@contextmanager
def _lock(path: str) -> Iterator[bool]:
    """Hold the lock of a copy; yield whether it was to be had in time."""
    with _translated(path):
        fd = posix.open_no_link(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _acquired(fd)
    finally:
        os.close(fd)


def _acquired(fd: int) -> bool:
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            posix.try_lock(fd)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_LOOK_S)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LocalCopyError(
            "an executor's local copy of state cannot be made",
            operation="make local copy",
            path=path,
            hint="see that the disk of spark.local.dir has room and is sound",
        ) from error


@cache
def _folder_of_this_process() -> str:
    """Return a folder for where Spark names none; removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
