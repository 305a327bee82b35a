"""Who changes a location: one command at a time, by a lock and by the barrier.

    hold_location -> raise_barrier or take_over -> (check -> step)* -> remove

Invariants:

1. On a local file system a command holds ``flock`` on the location's folder from before it reads
   what is there until its last step is durable. The lock ends with the process and never by time,
   so a command that was stopped for a while does not wake up beside another one.
2. The barrier (penstock.checkpoint.tools.barrier) is created exclusively. Only ``undo`` of the
   change that it names replaces it, by one with a token of its own.
3. Each step, and the removal of the barrier, checks first that the barrier has the command's own
   token: a command whose change was taken over takes no further step.

Object stores have no locks, nor have some mounts. There nothing tells whether the command that
began a change still runs, and it may be between a check and its step. So ``undo`` of a change that
is not finished is refused there unless the caller says that this command has ended.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.checkpoint.tools.barrier import BARRIER, INTERRUPTED, barrier_entry, ways_out
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import read_if_there
from penstock.errors import AlreadyExistsError, CheckpointError
from penstock.storage import Storage, local_root, posix

_OPERATION = "change checkpoint location"


class Barrier:
    """The barrier of this command; see ``raise_barrier`` and ``take_over``."""

    def __init__(self, storage: Storage, entry: bytes) -> None:
        self._storage = storage
        self._entry = entry

    def check(self) -> None:
        """Raise CheckpointError if it is not there any more, or is another command's."""
        if read_if_there(self._storage, BARRIER) != self._entry:
            raise CheckpointError(
                "another `penstock checkpoint` command has taken this change over",
                operation=_OPERATION,
                path=self._storage.url,
                hint="this one stopped where it was; let the other one finish, and see"
                " `penstock checkpoint inspect`",
            )

    def remove(self) -> None:
        """Let queries start; raises as ``check``."""
        self.check()
        self._storage.delete(BARRIER)


@contextmanager
def hold_location(storage: Storage) -> Iterator[bool]:
    """Lock a location for this command; yield whether its file system has locks.

    Raises:
        CheckpointError: another command is changing it.
    """
    root = local_root(storage.url)
    if root is None:
        yield False
        return
    fd = os.open(root, os.O_RDONLY)
    try:
        yield _lock(fd, storage)
    finally:
        with suppress(OSError):
            posix.unlock(fd)  # a child that was forked meanwhile may have the descriptor
        os.close(fd)


def raise_barrier(
    storage: Storage, *, undo: str | None = None, copy_of: str | None = None
) -> Barrier:
    """Begin a change; see ``barrier_entry``.

    Raises:
        CheckpointError: another change is not finished.
    """
    entry = barrier_entry(secrets.token_hex(16), undo=undo, copy_of=copy_of)
    try:
        storage.create(BARRIER, entry)
    except AlreadyExistsError:
        if (found := read_if_there(storage, BARRIER)) != entry:  # else the answer was lost
            raise _not_finished(storage, found or b"") from None
    return Barrier(storage, entry)


def take_over(storage: Storage, undo: str) -> Barrier:
    """Replace the barrier of a change that is not finished, and that the caller takes back."""
    entry = barrier_entry(secrets.token_hex(16), undo=undo)
    storage.create(BARRIER, entry, overwrite=True)
    return Barrier(storage, entry)


def check_not_barred(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if a change of a location is not finished."""
    if checkpoint.is_barred:
        raise _not_finished(checkpoint.storage, checkpoint.read_barrier())


def _not_finished(storage: Storage, entry: bytes) -> CheckpointError:
    return CheckpointError(
        f"{INTERRUPTED}, so no query starts on it",
        operation=_OPERATION,
        path=storage.url,
        hint=ways_out(entry, storage.uri),
    )


def _lock(fd: int, storage: Storage) -> bool:
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
        return False  # a mount without locks
    return True
