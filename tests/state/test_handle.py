"""State: what Spark's StateImpl allows and refuses."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import StateError
from penstock.state import State


def test_a_key_without_state() -> None:
    state: State[int] = State(None, defined=False)
    assert not state.exists()
    with pytest.raises(StateError, match="State is not set"):
        state.get()
    state.update(3)
    assert (state.exists(), state.get(), state.is_updated) == (True, 3, True)


def test_none_is_a_state() -> None:
    state: State[Any] = State(None, defined=True)
    assert state.exists()
    assert state.get() is None


def test_removing() -> None:
    state = State(1, defined=True)
    state.update(2)
    state.remove()
    assert (state.exists(), state.is_updated, state.is_removed) == (False, False, True)
    with pytest.raises(StateError, match="State is not set"):
        state.get()
    with pytest.raises(StateError, match="Cannot update the state after it has been removed"):
        state.update(3)
    with pytest.raises(StateError, match="Cannot remove the state that has already been removed"):
        state.remove()


def test_removing_what_is_not_there() -> None:
    state: State[int] = State(None, defined=False)
    state.remove()
    assert not state.exists()


def test_timing_out() -> None:
    state = State(1, defined=True, timing_out=True)
    assert state.isTimingOut()
    assert (state.exists(), state.get()) == (True, 1)
    with pytest.raises(StateError, match="Cannot update the state that is timing out"):
        state.update(2)
    with pytest.raises(StateError, match="Cannot remove the state that is timing out"):
        state.remove()
