"""Applies a plan: all of it or nothing, whenever the process dies.

    undo file -> barrier -> changes, in their order -> barrier removed

Invariants:

1. No file is changed before the undo file is durable. It holds each file's content before and
   after, so both the change and its way back can be completed by anyone who has the location.
2. No file is changed without the barrier (penstock.checkpoint.tools.barrier), which is created
   after the undo file and removed after the last change is durable. With it no query starts. So a
   query sees the location as it was before, or as planned; the removal is the moment of the change.
3. A file is changed, or removed, only if it holds what the plan says it holds, which is read right
   before; what already holds the planned content is done. So the steps can be repeated from any
   point, in either direction.
4. New files are created exclusively. A query that runs against all evidence, and plans the same
   batch, is first or fails by itself; if it is first, the change is taken back.
5. One command at a time makes the change (penstock.checkpoint.tools.changes.hold): on local disks
   by a lock, everywhere by a token in the barrier, which is checked before each step.
6. Without its barrier a change is begun, or taken back, only as a whole: all files are as before
   it, or all as after it. A mixture was written by a query.
7. Nothing outside of the location is read or written but the log of a sink, which is there before:
   no step follows a symbolic link, and the change that a barrier names is completed only with the
   sink that the command names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from penstock.checkpoint.tools.barrier import BARRIER, takes_back, undo_path_of
from penstock.checkpoint.tools.changes.evidence import check_quiet, hold_driver_lock
from penstock.checkpoint.tools.changes.hold import (
    Hold,
    hold_location,
    not_finished,
    raise_barrier,
)
from penstock.checkpoint.tools.changes.links import link_in
from penstock.checkpoint.tools.changes.plan import (
    SINK_LOG,
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
from penstock.storage import Storage, attach_storage, open_storage

__all__ = ["apply_plan", "interrupted_plan", "plan_undo"]

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

    After a kill the location is as before, as planned, or refused by every query until this or
    ``plan_undo`` is applied again.

    Args:
        plan: what to do.
        stopped: the caller knows that no query runs, so fresh files are not evidence of one.
        clock: for the age of files, and the name of the undo file.
        on_step: called with 1 for each of the plan's changes that is made.

    Raises:
        ConcurrentDriverError: a query runs, or may run.
        CheckpointError: the location is not as the plan says, or another change is not finished.
        StorageError: a file cannot be written; the same call completes the change.
    """
    clock = clock or SystemClock()
    storage = open_storage(plan.location)
    with hold_driver_lock(storage) as is_alone, hold_location(storage):
        if not is_alone and not stopped:
            check_quiet(plan, clock.time_ms())
        _check_reach(storage, plan)
        undo_path = plan.undo_path or _record(storage, plan, clock)
        hold = None
        try:
            hold = raise_barrier(storage, undo=undo_path, takes_back=_takes_back(plan))
            _check_unmoved(storage, plan, is_begun=not hold.is_first)
        except CheckpointError:
            if hold is not None:
                hold.withdraw()
            if plan.undo_path is None:  # nothing was changed, so there is nothing to undo
                storage.delete(undo_path)
            raise
        _take_steps(storage, plan, hold, on_step)
        hold.release()
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


def interrupted_plan(
    checkpoint: Checkpoint, command: str, sink: str | os.PathLike[str] | None = None
) -> Plan | None:
    """Return the plan that the same command began and did not finish; None when there is none.

    ``sink`` is the folder that the command names: the plan may change no other one.

    Raises:
        CheckpointError: another command did.
    """
    if not checkpoint.is_barred:
        return None
    barrier = checkpoint.read_barrier()
    undo_path = undo_path_of(barrier)
    plan = None if undo_path is None else _read_plan(checkpoint.storage, undo_path)
    roots = {None, None if sink is None else attach_storage(sink).url}
    is_same = plan is not None and plan.command == command
    if plan is not None and is_same and {change.root for change in plan.changes} <= roots:
        _check_reach(checkpoint.storage, plan)
        return plan
    raise not_finished(checkpoint.storage, barrier)


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
            if _holds(storage, change, content)
        }
        if not fits:
            raise _moved(storage, f"{change.place} holds something else")
        sides &= fits
        if not sides and not is_begun:
            raise _moved(
                storage, f"a query has run on it: not all files of the change fit ({change.place})"
            )
    return True in sides


def _check_reach(storage: Storage, plan: Plan) -> None:
    """Raise CheckpointError if a step would leave the location, or the log of a sink."""
    paths = [(storage, path) for path in (_UNDO_FOLDER, BARRIER)]
    for change in plan.changes:
        root = storage if change.root is None else attach_storage(change.root)
        sides = (side.path for side in (change.before, change.after) if isinstance(side, CopyOf))
        paths += [(root, path) for path in (change.path, *sides)]
    for root, path in dict.fromkeys(paths):
        if (link := link_in(root, path)) is not None:
            raise _out_of_reach(root, f"{link} is a symbolic link, which no query creates")
    for url in {change.root for change in plan.changes} - {None}:
        if url is not None and not attach_storage(url).list(SINK_LOG):
            raise _out_of_reach(storage, f"{url} has no log of Spark's file sink in {SINK_LOG}")


def _out_of_reach(storage: Storage, what: str) -> CheckpointError:
    return CheckpointError(
        f"the change would leave the checkpoint location: {what}",
        operation="change checkpoint location",
        path=storage.url,
        hint="nothing was changed. If you did not put that there, find out who can write there",
    )


def _take_steps(storage: Storage, plan: Plan, hold: Hold, on_step: Callable[[int], None]) -> None:
    """Make the changes; take all back if a query wrote one of the files."""
    try:
        _check_after(storage, plan, hold, None)
        for change in plan.changes:
            _take_step(storage, change)
            _check_after(storage, plan, hold, change)
            on_step(1)
    except _OtherContentError as error:
        raise _give_way(storage, plan, hold) from error
    # Hadoop's local file system checks for a file before it renames onto it: the later one wins.
    entries = (each for each in plan.changes if each.path.startswith(("offsets/", "commits/")))
    if not all(_holds(storage, each, each.after) for each in entries):
        raise _give_way(storage, plan, hold)


def _check_after(storage: Storage, plan: Plan, hold: Hold, step: FileChange | None) -> None:
    """Check that this command is at work; put back a step that came after another one's undo.

    Raises:
        CheckpointError: another command has taken over.
    """
    try:
        hold.check()
    except CheckpointError:
        if step is not None and _is_reversed(storage, plan, hold, step):
            with suppress(_OtherContentError):
                _take_step(storage, replace(step, before=step.after, after=step.before))
        raise


def _is_reversed(storage: Storage, plan: Plan, hold: Hold, step: FileChange) -> bool:
    """Whether another command goes, or has gone, the other way: then files are as before.

    All were as after the change when it ended, if it was completed; a next one may be at work.
    """
    if (entry := hold.newest()) is not None and undo_path_of(entry) == hold.undo_path:
        return takes_back(entry) != _takes_back(plan)
    others = (each for each in plan.changes if each is not step)
    return any(_holds(storage, each, each.before) for each in others)


def _takes_back(plan: Plan) -> bool:
    return plan.command.startswith("undo ")


def _give_way(storage: Storage, plan: Plan, hold: Hold) -> CheckpointError:
    """Take back what was changed, but for what a query wrote; return the error."""
    for change in inverse(plan).changes:
        if _holds(storage, change, change.before):
            hold.check()
            _take_step(storage, change)
    hold.release()
    return _moved(storage, "a query that runs wrote the same file")


def _take_step(location: Storage, change: FileChange) -> None:
    storage = location if change.root is None else open_storage(change.root)
    after = _resolve(storage, change.after)
    held = read_if_there(storage, change.path)
    if held == after:
        return
    if held != _resolve(storage, change.before):
        raise _OtherContentError(change.place)
    if after is None:
        storage.delete(change.path)
        return
    try:
        storage.create(change.path, after, overwrite=change.before is not None)
    except AlreadyExistsError as error:
        if read_if_there(storage, change.path) != after:  # else this call's own: an answer was lost
            raise _OtherContentError(change.place) from error


def _holds(location: Storage, change: FileChange, content: bytes | CopyOf | None) -> bool:
    storage = location if change.root is None else attach_storage(change.root)
    return read_if_there(storage, change.path) == _resolve(storage, content)


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
