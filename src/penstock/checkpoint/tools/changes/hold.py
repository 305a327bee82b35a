"""Who changes a location: one command at a time, by a lock and by the barrier.

    hold_location -> raise_barrier -> (check -> step)* -> release

Invariants:

1. On a local file system a command holds ``flock`` on the location's folder from before it reads
   what is there until its last step is durable. The lock ends with the process and never by time,
   so a command that was stopped for a while does not wake up beside another one.
2. The barrier holds a random token of the command that is at work. A command that completes what
   another one began puts its own token there. Each step checks first that the own token stands
   there: a command that lost its place takes no further step, and leaves the barrier alone.

Object stores have no locks, nor have some mounts. There 2 counts alone: a command that is overtaken
between a check and its step (one request) still takes this one, so steps also depend on what a file
holds (penstock.checkpoint.tools.changes.apply and fill).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.checkpoint.tools.barrier import (
    BARRIER,
    INTERRUPTED,
    barrier_entry,
    last_batch_of,
    origin_of,
    undo_path_of,
    ways_out,
)
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.errors import AlreadyExistsError, CheckpointError, NotFoundError
from penstock.storage import Storage, local_root, posix

__all__ = ["Hold", "check_not_barred", "hold_location", "not_finished", "raise_barrier"]

_OPERATION = "change checkpoint location"


class Hold:
    """The right to change a location, by the barrier; see ``raise_barrier``."""

    def __init__(self, storage: Storage, entry: bytes, *, is_first: bool) -> None:
        self._storage = storage
        self._entry = entry
        self.is_first = is_first
        """Whether this command created the barrier; else it completes what another one began."""

    def check(self) -> None:
        """Raise CheckpointError if another command has taken over."""
        with suppress(NotFoundError):
            if self._storage.read(BARRIER) == self._entry:
                return
        raise CheckpointError(
            "another `penstock checkpoint` command has taken this change over",
            operation=_OPERATION,
            path=self._storage.url,
            hint="this one stopped where it was; let the other one finish, and see"
            " `penstock checkpoint inspect`",
        )

    def release(self) -> None:
        """Remove the barrier; raises as ``check``."""
        self.check()
        self._storage.delete(BARRIER)


@contextmanager
def hold_location(storage: Storage) -> Iterator[None]:
    """Lock a location for this command, where its file system has locks.

    Raises:
        CheckpointError: another command is changing it.
    """
    root = local_root(storage.url)
    if root is None:
        yield
        return
    fd = os.open(root, os.O_RDONLY)
    try:
        _lock(fd, storage)
        yield
    finally:
        with suppress(OSError):
            posix.unlock(fd)  # a child that was forked meanwhile may have the descriptor
        os.close(fd)


def raise_barrier(
    storage: Storage,
    *,
    undo: str | None = None,
    copy_of: str | None = None,
    last_batch: int | None = None,
) -> Hold:
    """Create the barrier of a change, or take over that of the same one; see ``barrier_entry``.

    Raises:
        CheckpointError: another change is not finished.
    """
    token = secrets.token_hex(16)
    entry = barrier_entry(token, undo=undo, copy_of=copy_of, last_batch=last_batch)
    try:
        storage.create(BARRIER, entry)
    except AlreadyExistsError as error:
        other = storage.read(BARRIER)
        if other == entry:  # created by this call: its answer was lost
            return Hold(storage, entry, is_first=True)
        found = (undo_path_of(other), origin_of(other), last_batch_of(other))
        if found != (undo, copy_of, last_batch):
            raise not_finished(storage, other) from error
        storage.create(BARRIER, entry, overwrite=True)
        return Hold(storage, entry, is_first=False)
    return Hold(storage, entry, is_first=True)


def check_not_barred(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if a change of a location is not finished."""
    if checkpoint.is_barred:
        raise not_finished(checkpoint.storage, checkpoint.read_barrier())


def not_finished(storage: Storage, entry: bytes) -> CheckpointError:
    """Return the error of a location with the barrier of another change."""
    return CheckpointError(
        f"{INTERRUPTED}, so no query starts on it",
        operation=_OPERATION,
        path=storage.url,
        hint=ways_out(entry, storage.uri),
    )


def _lock(fd: int, storage: Storage) -> None:
    try:
        posix.try_lock(fd)
    except BlockingIOError as error:
        raise CheckpointError(
            "another `penstock checkpoint` command is changing this location",
            operation=_OPERATION,
            path=storage.url,
            hint="wait until it has ended, and plan again",
        ) from error
    except OSError:
        return  # a mount without locks, as object stores: the barrier's token remains
