"""Copies of partitions' state on an executor's local disk, for tasks to read.

A cache in a Python worker would not work: the next task of a partition may run in any worker, and
two attempts of one task may run at once. So the copy is a file, and a task holds its lock while it
uses it.

Invariants:

1. A copy only moves forward, to versions that the driver has published: it never holds the result
   of an attempt, so it never needs a rollback, whatever dies.
2. The holder of the lock has exclusive use of the copy. A task that does not get the lock in time,
   or needs a version older than the copy, creates a private copy for this use.
3. A damaged copy is removed; the next use creates it again from the storage.
4. A copy holds pickles, so its folder is this user's alone, which each use checks: it may be in
   ``/tmp``, where whoever cleans up may remove it, and any user can create it again.

The folder belongs to the executor (Spark removes it with the executor), so a copy is not used after
a power cut, which may lose unsynced data. Each run of the driver uses its own folder, so a copy is
not used either after the checkpoint location was set back to an earlier version.
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

from penstock.clock import iso_time
from penstock.errors import LocalCopyError
from penstock.state.database import Database, Origin, remove_database
from penstock.state.delta import open_changes, open_delta, read_changes
from penstock.state.layers import SNAPSHOT, Layer, catch_up
from penstock.state.layout import parse_name
from penstock.state.state_file import open_file
from penstock.storage import Storage, posix
from penstock.storage.trust import check_trusted_file

__all__ = ["local_folder", "open_copy", "private_database"]

_PATIENCE_S = 5.0
_LOOK_S = 0.02


def local_folder(run: str, operator: str, partition: int) -> str:
    """Return the folder of a partition's copy on this executor, for a run of the driver."""
    # The folders that Spark gives its Python workers for spills: one of several disks per
    # partition.
    places = os.environ.get("SPARK_LOCAL_DIRS") or _folder_of_this_process()
    disks = places.split(",")
    return os.path.join(disks[partition % len(disks)], "penstock-state", run, operator)


@contextmanager
def open_copy(
    storage: Storage, folder: str, local: str, partition: int, tip: str | None
) -> Iterator[Database]:
    """Open a copy of the version that ends with delta ``tip``; None for empty state.

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
    _make(local)
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
    """Create an empty database for this use only. Raises LocalCopyError."""
    _make(local)
    path = os.path.join(local, f"{partition:05d}.sqlite.{secrets.token_hex(4)}")
    try:
        with closing(Database(path)) as database:
            yield database
    finally:
        remove_database(path)


def _make(local: str) -> None:
    with _translated(local):
        os.makedirs(local, mode=0o700, exist_ok=True)
        check_trusted_file(local, os.lstat(local))


def _used(database: Database) -> Iterator[Database]:
    """Yield a database, close it, and remove it if it is damaged."""
    with closing(database):
        try:
            yield database
        except LocalCopyError:
            remove_database(database.path)
            raise


def _shared(storage: Storage, folder: str, path: str, tip: str | None) -> Database | None:
    """Return the copy, updated to the version; None if the copy is newer."""
    try:
        database = Database(path)
    except LocalCopyError:  # damaged: the storage is authoritative
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
    """Return the database, updated to the version; it is closed if that fails."""
    try:
        if database.origin.tip != tip:
            assert tip is not None  # every version is newer than the empty one
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
        is_of, expected = iso_time(source.facts["until_ms"]), iso_time(layer.until_ms)
        source.damaged(f"it is of {is_of}, not of {expected}")
    database.load(source.pieces("database"))  # in pieces, as it may be large


@contextmanager
def _lock(path: str) -> Iterator[bool]:
    """Hold the lock of a copy; yield whether it was acquired in time."""
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
            "an executor's local copy of state cannot be created",
            operation="make local copy",
            path=path,
            hint="check that the disk of spark.local.dir has free space and works",
        ) from error


@cache
def _folder_of_this_process() -> str:
    """Return a folder if Spark provides none; it is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
