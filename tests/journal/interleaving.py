"""Runs two sides turn by turn: each may be held before a chosen storage operation of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.journal import JournalStream
from tests.journal.helpers import WAIT_S
from tests.storage.faulty_storage import FaultyStorage, Operation

Side = Callable[[JournalStream], None]


def interleave(
    stream: JournalStream, first: Side, first_operations: int, second: Side, second_operations: int
) -> tuple[bool, bool]:
    """Take two sides through three changes of turn; return whether each was held on the way.

    The first one does so many operations, then the second one does so many, then the first one goes
    on to its end, then the second one. A side that ends before that is not held.
    """
    one, two = _Held(stream, first, first_operations), _Held(stream, second, second_operations)
    one.go()
    two.go()
    one.finish()
    two.finish()
    return one.was_held, two.was_held


class _Held:
    """One side, in a thread of its own; only one side runs at a time."""

    def __init__(self, stream: JournalStream, side: Side, operations: int) -> None:
        storage = FaultyStorage(stream.storage, before=self._before)
        self._stream = JournalStream(storage, stream.name, stream.format)
        self._side = side
        self._left = operations
        self._stopped = threading.Event()
        self._resumed = threading.Event()
        self._error: BaseException | None = None
        self.was_held = False
        self._thread = threading.Thread(target=self._run)

    def go(self) -> None:
        """Run until it is held, or ends."""
        self._thread.start()
        assert self._stopped.wait(WAIT_S)

    def finish(self) -> None:
        """Run to the end; raises what the side raised."""
        self._resumed.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._side(self._stream)
        except BaseException as error:
            self._error = error
        finally:
            self._stopped.set()

    def _before(self, operation: Operation) -> None:
        if self._left == 0 and not self.was_held:
            self.was_held = True
            self._stopped.set()
            assert self._resumed.wait(WAIT_S)
        self._left -= 1
