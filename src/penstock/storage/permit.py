"""A thread's permission to change files, which another thread can take back.

A write that hangs cannot be ended: it may go on when nobody expects it any more, and replace what a
successor wrote. So penstock's storages ask for the permission last, right before a file gets its
name or is removed. It goes with the thread, through all storages that stand one before the other.

A system call or request that is under way at that moment has the permission already: nothing takes
that back, and ``take_back`` waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import StorageError

_of_thread = threading.local()


class Permit:
    """The permission of a thread while it ``holds`` it. Thread-safe."""

    def __init__(self) -> None:
        self._is_given = True
        self._is_used = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have this thread change files in a block by this permission only."""
        _of_thread.permit = self
        try:
            yield
        finally:
            _of_thread.permit = None

    def take_back(self, within_s: float) -> None:
        """Let the thread change nothing more; wait for a step that is under way, for so long."""
        self._is_given = False
        if self._is_used.acquire(timeout=within_s):
            self._is_used.release()


@contextmanager
def permitted() -> Iterator[None]:
    """Do the step in a block that changes files.

    Raises:
        StorageError: this thread's permission was taken back.
    """
    permit: Permit | None = getattr(_of_thread, "permit", None)
    if permit is None:
        yield
        return
    with permit._is_used:
        if not permit._is_given:
            raise StorageError(
                "it took too long, and was given up",
                operation="change files",
                hint="see whether the storage answers",
            )
        yield


def check_permitted() -> None:
    """Raise StorageError if this thread's permission was taken back."""
    with permitted():
        pass
