"""The state of a program from its creation to its end, and the error that ended it."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from functools import partial

from penstock.errors import StreamingError
from penstock.shutdown import wait_in_steps

_STOP_S = 60.0
"""A stop that is not graceful takes less; the longest wait for one."""


class State(enum.Enum):
    """initialized -> active -> stopped, or initialized -> stopped."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED = "stopped"


class LifeCycle:
    """The state of one program. Any thread may fail it, or wait for its end."""

    def __init__(self) -> None:
        self._state = State.INITIALIZED
        self._error: BaseException | None = None
        self._ends = False
        self._changed = threading.Condition()

    def check_changeable(self, what: str) -> None:
        """Raise StreamingError when the program was started: it cannot change any more."""
        if self._state is not State.INITIALIZED:
            raise StreamingError(
                f"cannot {what}: the context was already started or stopped",
                operation=what,
                hint="set everything up before start(), or create a new StreamingContext",
            )

    def check_startable(self) -> None:
        """Raise StreamingError when the program was started before, or stopped."""
        if self._state is not State.INITIALIZED:
            raise StreamingError(
                f"the context is {self._state.value} and cannot be started",
                operation="start",
                hint="create a new StreamingContext",
            )

    def enter(self, state: State) -> None:
        """Set the state, and wake waiting threads."""
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Keep the first error for waiting threads; it does not stop the program."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def begin_end(self, error: BaseException) -> bool:
        """Keep an error that ends the program; return whether it is the first one.

        Waiting threads get it when the program is stopped.
        """
        with self._changed:
            first, self._ends = not self._ends, True
        self.fail(error)
        return first

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the end; return whether it came in time. Raises the program's error.

        If the error ends the program, it is raised after the stop: receivers end in order.
        """
        with self._changed:
            self._wait_until(lambda: self._error is not None or self._is_stopped(), timeout_s)
            if self._error is not None:
                if self._ends:
                    self._wait_until(self._is_stopped, _STOP_S)
                raise self._error
            return self._is_stopped()

    def _is_stopped(self) -> bool:
        return self._state is State.STOPPED

    def _wait_until(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        wait_in_steps(partial(self._changed.wait_for, condition), timeout_s)
