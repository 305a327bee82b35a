"""Applies a plan: all of it or nothing, whenever the process dies.

    undo file -> barrier -> changes, in their order -> barrier removed

Invariants:

1. No file is changed before the undo file is durable. It holds each file's content before and
   after, so a change that was interrupted can be taken back by anyone who has the location.
2. No file is changed without the barrier (penstock.checkpoint.tools.barrier), which is created
   after the undo file and removed after the last change is durable. With it no query starts. So a
   query sees the location as it was before, or as planned; the removal is the moment of the change.
3. A file is changed, or removed, only if it holds what the plan says it holds, which is read right
   before; what already holds the planned content is done. So an undo can be repeated from any
   point.
4. New files are created exclusively. A query of Spark that still runs, and plans the same batch, is
   first or fails by itself; if it is first, the change is taken back.
5. One command at a time changes a location (penstock.checkpoint.tools.changes.hold).
6. Without its barrier a change is begun, or taken back, only as a whole: all files are as before
   it, or all as after it. A mixture was written by a query.
7. Nothing outside of the location is read or written: no step follows a symbolic link.

A penstock program that runs on a local file system holds its lock, and refuses a change. Spark's
queries hold none, nor do programs on object stores: whether they run cannot be told here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.tools.barrier import BARRIER, undo_path_of
from penstock.checkpoint.tools.changes.hold import Barrier, hold_location, raise_barrier, take_over
from penstock.checkpoint.tools.changes.links import link_in
from penstock.checkpoint.tools.changes.plan import (
    CopyOf,
    FileChange,
    MalformedPlanError,
    Plan,
    dump_plan,
    inverse,
    parse_plan,
)
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import list_folders, read_entries, read_if_there
from penstock.clock import Clock, SystemClock
from penstock.errors import (
    AlreadyExistsError,
    CheckpointError,
    ConfigError,
    StorageError,
)
from penstock.storage import Storage, local_root, open_storage

_UNDO_FOLDER = "undo"
_READ_UNDO = "read undo file"
_HINT = "give the file that --apply named; it is in the folder undo of the checkpoint location"
_UNDONE = "the location is as it was before: the change was taken back already, or never made"


class _OtherContentError(Exception):
    """A file holds neither what it held before the change nor what it is to hold."""


def apply_plan(
    plan: Plan,
    *,
    stopped: bool = False,
    clock: Clock | None = None,
    on_step: Callable[[int], None] = lambda count: None,
) -> str:
    """Do what a plan says, and return the URL of its undo file.

    After a kill the location is as before, as planned, or refused by every query until
    ``plan_undo`` of its undo file is applied.

    Args:
        plan: what to do.
        stopped: for an undo on a storage without locks: the command that began the change, and did
            not finish it, has ended.
        clock: for the name of the undo file.
        on_step: called with 1 for each of the plan's changes that is made.

    Raises:
        ConcurrentDriverError: a penstock program runs there.
        CheckpointError: the location is not as the plan says, or another change is not finished, or
            may still be at work.
        StorageError: a file cannot be written; undo what was begun.
    """
    storage = open_storage(plan.location)
    with _hold_driver_lock(storage), hold_location(storage) as has_locks:
        _check_reach(storage, plan)
        is_begun = plan.undo_path is not None and plan.undo_path == _barred_by(storage)
        if is_begun and not (has_locks or stopped):
            raise CheckpointError(
                "the command that began this change may still be at work: the storage has no locks"
                " that tell",
                operation="change checkpoint location",
                path=storage.url,
                hint="nothing was changed. Make sure that it has ended, and add --stopped",
            )
        undo_path = plan.undo_path or _record(storage, plan, clock or SystemClock())
        barrier = None
        try:
            if is_begun:
                barrier = take_over(storage, undo_path)
            else:
                barrier = raise_barrier(storage, undo=undo_path)
            _check_unmoved(storage, plan, is_begun=is_begun)
        except CheckpointError:
            if barrier is not None and not is_begun:
                barrier.remove()
            if plan.undo_path is None:  # nothing was changed, so there is nothing to undo
                storage.delete(undo_path)
            raise
        _take_steps(storage, plan, barrier, on_step)
        barrier.remove()
    return storage.uri(undo_path)


def plan_undo(undo_file: str | os.PathLike[str]) -> Plan:
    """Return the plan that takes a change back; one without changes if that is done already.

    Raises:
        ConfigError: there is no such file, or it is not an undo file.
        CheckpointError: the location has moved since: a query has run on it.
        StorageError: it cannot be read.
    """
    path = os.fspath(undo_file)
    place, slash, name = path.rpartition(f"/{_UNDO_FOLDER}/")
    if not slash and path.startswith(f"{_UNDO_FOLDER}/"):
        place, slash, name = ".", "/", path.removeprefix(f"{_UNDO_FOLDER}/")
    if not slash:
        raise ConfigError("it is not an undo file", operation=_READ_UNDO, path=path, hint=_HINT)
    checkpoint = Checkpoint.open(place)
    undo_path = f"{_UNDO_FOLDER}/{name}"
    plan = inverse(_read_plan(checkpoint.storage, undo_path))
    _check_reach(checkpoint.storage, plan)
    is_begun = undo_path_of(checkpoint.read_barrier()) == undo_path
    is_done = _check_unmoved(checkpoint.storage, plan, is_begun=is_begun)
    if is_done and not is_begun:
        return replace(plan, meaning=(_UNDONE,), changes=())
    return plan


@contextmanager
def _hold_driver_lock(storage: Storage) -> Iterator[None]:
    """Hold the lock of penstock's driver where a program has left one.

    Raises:
        ConcurrentDriverError: the program runs.
    """
    root = local_root(storage.url)
    if root is None or not storage.exists(LOCK_NAME):
        yield
        return
    lock = DriverLock(f"{root.rstrip('/')}/{LOCK_NAME}")
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _barred_by(storage: Storage) -> str | None:
    """Return the undo file of the change that is not finished; None without one."""
    entry = read_if_there(storage, BARRIER)
    return None if entry is None else undo_path_of(entry)


def _record(storage: Storage, plan: Plan, clock: Clock) -> str:
    """Write the undo file; return its path."""
    now = datetime.fromtimestamp(clock.time_ms() / 1000, timezone.utc)
    stamp = f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}Z"
    path = f"{_UNDO_FOLDER}/{stamp}-{plan.command.partition(' ')[0]}.json"
    storage.create(path, dump_plan(plan))
    return path


def _check_unmoved(storage: Storage, plan: Plan, *, is_begun: bool) -> bool:
    """Raise CheckpointError unless the location is as before the plan or after it.

    If the change is begun, it may also be in between. Return whether it is as after it.
    """
    checkpoint = Checkpoint.open(storage.url)
    for log, ids, limit in zip(
        ("planned", "committed"),
        (checkpoint.planned, checkpoint.committed),
        plan.newest_after(),
        strict=True,
    ):
        if ids and ids[-1] > limit:
            raise _moved(storage, f"batch {ids[-1]} was {log} since")
    sides = {True, False}
    for change in plan.changes:
        fits = {
            is_after
            for is_after, content in ((False, change.before), (True, change.after))
            if _holds(storage, change.path, content)
        }
        if not fits:
            raise _moved(storage, f"{change.path} holds something else")
        sides &= fits
        if not sides and not is_begun:
            raise _moved(
                storage, f"a query has run on it: not all files of the change fit ({change.path})"
            )
    return True in sides


def _check_reach(storage: Storage, plan: Plan) -> None:
    """Raise CheckpointError if a step would leave the location."""
    paths = [_UNDO_FOLDER, BARRIER]
    for change in plan.changes:
        sides = (side.path for side in (change.before, change.after) if isinstance(side, CopyOf))
        paths += [change.path, *sides]
    for path in dict.fromkeys(paths):
        if (link := link_in(storage, path)) is not None:
            raise CheckpointError(
                f"the change would leave the checkpoint location: {link} is a symbolic link, which"
                " no query creates",
                operation="change checkpoint location",
                path=storage.url,
                hint="nothing was changed. If you did not put that there, find out who can write"
                " there",
            )


def _take_steps(
    storage: Storage, plan: Plan, barrier: Barrier, on_step: Callable[[int], None]
) -> None:
    """Make the changes; take all back if a query wrote one of the files."""
    try:
        for change in plan.changes:
            barrier.check()
            _take_step(storage, change)
            on_step(1)
    except _OtherContentError as error:
        raise _give_way(storage, plan, barrier) from error
    # Hadoop's local file system checks for a file before it renames onto it: the later one wins.
    entries = (each for each in plan.changes if each.path.startswith(("offsets/", "commits/")))
    if not all(_holds(storage, each.path, each.after) for each in entries):
        raise _give_way(storage, plan, barrier)


def _give_way(storage: Storage, plan: Plan, barrier: Barrier) -> CheckpointError:
    """Take back what was changed, but for what a query wrote; return the error."""
    for change in inverse(plan).changes:
        if _holds(storage, change.path, change.before):
            barrier.check()
            _take_step(storage, change)
    barrier.remove()
    return _moved(storage, "a query that runs wrote the same file")


def _take_step(storage: Storage, change: FileChange) -> None:
    after = _resolve(storage, change.after)
    held = read_if_there(storage, change.path)
    if held == after:
        return
    if held != _resolve(storage, change.before):
        raise _OtherContentError(change.path)
    if after is None:
        storage.delete(change.path)
        return
    try:
        storage.create(change.path, after, overwrite=change.before is not None)
    except AlreadyExistsError as error:
        if read_if_there(storage, change.path) != after:  # else this call's own: an answer was lost
            raise _OtherContentError(change.path) from error


def _holds(storage: Storage, path: str, content: bytes | CopyOf | None) -> bool:
    return read_if_there(storage, path) == _resolve(storage, content)


def _resolve(storage: Storage, content: bytes | CopyOf | None) -> bytes | None:
    return storage.read(content.path) if isinstance(content, CopyOf) else content


def _read_plan(storage: Storage, undo_path: str) -> Plan:
    facts: dict[str, Any] = {"operation": _READ_UNDO, "path": storage.uri(undo_path)}
    data = read_entries(storage, list_folders(storage, [_UNDO_FOLDER]), [undo_path]).get(undo_path)
    if data is None:
        raise ConfigError("there is no such undo file", hint=_HINT, **facts)
    if isinstance(data, StorageError):
        raise data
    try:
        return parse_plan(data, location=storage.url, undo_path=undo_path)
    except MalformedPlanError as error:
        raise ConfigError(str(error), hint=_HINT, **facts) from error


def _moved(storage: Storage, what: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint location has moved since this change was planned: {what}",
        operation="change checkpoint location",
        path=storage.url,
        hint="nothing was changed; `penstock checkpoint inspect` shows where the query stands now."
        " Stop it, and plan again",
    )
