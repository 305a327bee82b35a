"""Whether a query may be running on a location, by what can be seen from outside.

A driver of penstock on a local file system holds its lock for as long as it lives: that is proof.
Spark holds no lock. Of its queries, and on object stores, only the times of files tell: a file that
was written a moment ago says that a query runs, and an old one does not say that none does, because
a trigger may come once a day. So the fresh file refuses, and the old one is shown to the operator.

A program that was refused on a location of Spark's leaves the lock's file there, so the lock is
proof for locations of penstock only. Files of a change that was begun were written by the change;
before it is begun, all files are the query's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta

from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.tools.barrier import is_barrier
from penstock.checkpoint.tools.changes.plan import Plan
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.clock import Clock, SystemClock
from penstock.errors import ConcurrentDriverError
from penstock.storage import Storage, local_root

__all__ = ["check_quiet", "describe_evidence", "hold_driver_lock"]

_FRESH_MS = 60_000


@contextmanager
def hold_driver_lock(storage: Storage) -> Iterator[bool]:
    """Hold the lock of penstock's driver where there is one; yield whether that is proof.

    Raises:
        ConcurrentDriverError: the program runs.
    """
    root = local_root(storage.url)
    if root is None or not storage.exists(LOCK_NAME):
        yield False
        return
    lock = DriverLock(f"{root.rstrip('/')}/{LOCK_NAME}")
    lock.acquire()
    try:
        checkpoint = Checkpoint.open(storage.url)
        yield any(map(is_of_penstock, checkpoint.batches(checkpoint.planned[-2:])))
    finally:
        lock.release()


def check_quiet(plan: Plan, now_ms: int) -> None:
    """Check that the files of a plan's location are not fresh, other than what it wrote itself.

    Raises:
        ConcurrentDriverError: a file was written less than a minute ago, or the store tells no
            times.
    """
    newest = _newest_write(Checkpoint.open(plan.location), _own_paths(plan))
    if newest is not None and now_ms - newest[1] >= _FRESH_MS:
        return
    what = "the store tells no times" if newest is None else f"{newest[0]} is fresh"
    raise ConcurrentDriverError(
        f"a query may still be running: {what}",
        operation="change checkpoint location",
        path=plan.location,
        hint="stop the query; then wait until its newest file is a minute old, or add --stopped",
    )


def describe_evidence(plan: Plan, clock: Clock | None = None) -> str:
    """Return in words when a query last wrote to the location of a plan."""
    newest = _newest_write(Checkpoint.open(plan.location), _own_paths(plan))
    if newest is None:
        return "when the query last wrote is not known: the store tells no times"
    age_ms = max(0, (clock or SystemClock()).time_ms() - newest[1])
    age = timedelta(seconds=age_ms // 1000)
    return f"the query last wrote {age} ago ({newest[0]})"


def _own_paths(plan: Plan) -> set[str]:
    if plan.undo_path is None:
        return set()
    return {each.path for each in plan.changes if each.root is None}


def _newest_write(checkpoint: Checkpoint, own: Collection[str]) -> tuple[str, int] | None:
    times = (
        (info.path, info.modified_ms)
        for info in checkpoint.files.values()
        if info.modified_ms is not None and not (info.path in own or is_barrier(info.path))
    )
    return max(times, key=lambda each: each[1], default=None)
