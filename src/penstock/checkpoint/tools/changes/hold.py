"""Who changes a location: one command at a time, by a lock and by the barrier.

    hold_location -> raise_barrier -> (check -> step)* -> release

Invariants:

1. On a local file system a command holds ``flock`` on the location's folder from before it reads
   what is there until its last step is durable. The lock ends with the process and never by time,
   so a command that was stopped for a while does not wake up beside another one.
2. Each command has a barrier of its own, with a random token. One that completes, or takes back,
   what another one began creates the next barrier; the last one is that of the command at work.
   Each step checks first that the own barrier is the last one and holds the own token: a command
   that was overtaken takes no further step.
3. A command removes its own barrier and those before it, the oldest first, and never a later one.
   So one that is overtaken between its last check and that removal does not unbar the location.
4. All barriers at one time are of one change. A command looks for others before it creates its own,
   and again afterwards: meanwhile the change may have ended, and another one have begun.

Object stores have no locks, nor have some mounts. There 2 counts alone: a command that is overtaken
between a check and its step (one request) still takes this one. So steps also depend on what a file
holds, and its next check, which fails, puts the file back if the change was taken back meanwhile
(penstock.checkpoint.tools.changes.apply and fill).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from penstock.checkpoint.tools.barrier import (
    INTERRUPTED,
    barrier_entry,
    barriers_in,
    last_batch_of,
    next_barrier,
    origin_of,
    undo_path_of,
    ways_out,
)
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import read_if_there
from penstock.errors import AlreadyExistsError, CheckpointError, NotFoundError
from penstock.storage import Storage, local_root, posix

__all__ = ["Hold", "check_not_barred", "hold_location", "not_finished", "raise_barrier"]

_OPERATION = "change checkpoint location"


class Hold:
    """The right to change a location, by the barrier; see ``raise_barrier``."""

    def __init__(self, storage: Storage, barrier: str, entry: bytes) -> None:
        self._storage = storage
        self._entry = entry
        self.barrier = barrier
        """The path of the own barrier."""
        self.undo_path = undo_path_of(entry)
        self.is_first = _barriers(storage) == [barrier]
        """Whether this command began the change; else it completes what another one began."""

    def check(self) -> None:
        """Raise CheckpointError if another command has taken over."""
        with suppress(NotFoundError):
            is_last = _barriers(self._storage)[-1:] == [self.barrier]
            if is_last and self._storage.read(self.barrier) == self._entry:
                return
        raise CheckpointError(
            "another `penstock checkpoint` command has taken this change over",
            operation=_OPERATION,
            path=self._storage.url,
            hint="this one stopped where it was; let the other one finish, and see"
            " `penstock checkpoint inspect`",
        )

    def newest(self) -> bytes | None:
        """Return the entry of the command at work; None without one."""
        last = _barriers(self._storage)[-1:]
        return read_if_there(self._storage, last[0]) if last else None

    def withdraw(self) -> None:
        """Remove the own barrier alone: this command has changed nothing."""
        self._storage.delete(self.barrier)

    def release(self) -> None:
        """Unbar the location; raises as ``check``."""
        before = _barriers(self._storage)
        self.check()
        for barrier in before:
            self._storage.delete(barrier)


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
    takes_back: bool = False,
    copy_of: str | None = None,
    last_batch: int | None = None,
) -> Hold:
    """Begin a change, or take over the same one from another command; see ``barrier_entry``.

    Raises:
        CheckpointError: another change is not finished.
    """
    token = secrets.token_hex(16)
    entry = barrier_entry(
        token, undo=undo, takes_back=takes_back, copy_of=copy_of, last_batch=last_batch
    )
    while True:
        others = _barriers(storage)
        if (other := _of_another_change(storage, others, entry)) is not None:
            raise not_finished(storage, other)
        mine = next_barrier(others)
        try:
            storage.create(mine, entry)
        except AlreadyExistsError:
            if read_if_there(storage, mine) != entry:  # else this call's own: an answer was lost
                continue
        *others, last = _barriers(storage) or [""]
        if last == mine and _of_another_change(storage, others, entry) is None:
            return Hold(storage, mine, entry)
        storage.delete(mine)  # below it is a later command's, or one of a change that began since


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


def _barriers(storage: Storage) -> list[str]:
    names = storage.without_sync().names("offsets")
    return barriers_in(f"offsets/{name}" for name in names)


def _of_another_change(storage: Storage, barriers: Sequence[str], entry: bytes) -> bytes | None:
    """Return the entry of a barrier that is of another change than an entry; None without one."""
    found = (read_if_there(storage, barrier) for barrier in reversed(barriers))
    return next((e for e in found if e is not None and _change_of(e) != _change_of(entry)), None)


def _change_of(entry: bytes) -> tuple[str | None, str | None, int | None]:
    return undo_path_of(entry), origin_of(entry), last_batch_of(entry)


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
