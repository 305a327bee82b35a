"""State: the object through which a user's function reads and changes the state of one key.

Source: ``org.apache.spark.streaming.State``.
"""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from penstock.errors import StateError

__all__ = ["State"]

S = TypeVar("S")


class State(Generic[S]):
    """The state of one key, during one call of the function.

    ``get`` returns a copy of the state: a change of the copy takes effect only when ``update`` is
    called with it.
    """

    __slots__ = ("_defined", "_removed", "_timing_out", "_updated", "_value")

    def __init__(self, value: S | None, *, defined: bool, timing_out: bool = False) -> None:
        self._value = value
        self._defined = defined
        self._timing_out = timing_out
        self._updated = False
        self._removed = False

    def exists(self) -> bool:
        """Whether the key has state."""
        return self._defined

    def get(self) -> S:
        """Return the state.

        Raises:
            StateError: the key has no state; check ``exists`` first.
        """
        if not self._defined:
            _refuse("State is not set", "get state", "call exists() first")
        return self._value  # type: ignore[return-value]  # None is a state as good as any

    def update(self, newState: S) -> None:
        """Give the key a new state.

        Raises:
            StateError: it was removed in this call, or is timing out.
        """
        if self._removed:
            _refuse("Cannot update the state after it has been removed", "update state", _ONE_CALL)
        if self._timing_out:
            _refuse("Cannot update the state that is timing out", "update state", _TIMING_OUT)
        self._value = newState
        self._defined = self._updated = True

    def remove(self) -> None:
        """Remove the key's state; does nothing without state.

        Raises:
            StateError: it was removed in this call already, or is timing out.
        """
        if self._timing_out:
            _refuse("Cannot remove the state that is timing out", "remove state", _TIMING_OUT)
        if self._removed:
            _refuse("Cannot remove the state that has already been removed", "remove", _ONE_CALL)
        self._value = None
        self._defined = self._updated = False
        self._removed = True

    def isTimingOut(self) -> bool:
        """Whether this is the last call for a key that was idle for longer than the timeout."""
        return self._timing_out

    @property
    def is_updated(self) -> bool:
        """Whether ``update`` was called, and not undone by ``remove``."""
        return self._updated

    @property
    def is_removed(self) -> bool:
        """Whether ``remove`` was called."""
        return self._removed

    def __repr__(self) -> str:
        return f"State({self._value!r})" if self._defined else "State(<state not set>)"


_ONE_CALL = "update or remove the state once in a call of the function"
_TIMING_OUT = "a state that isTimingOut() is removed after this call; only return a value"


def _refuse(message: str, operation: str, hint: str) -> NoReturn:
    raise StateError(message, operation=operation, hint=hint)
