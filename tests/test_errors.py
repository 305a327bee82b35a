"""Errors say what, where, why and the fix, and cross processes whole."""

from __future__ import annotations

import inspect
import pickle

import pytest

from penstock import errors
from penstock.errors import ConfigError, DamagedBlockError, PenstockError, StorageError

KINDS = [kind for kind in vars(errors).values() if inspect.isclass(kind)]


def test_one_line_holds_everything() -> None:
    error = DamagedBlockError(
        "block is damaged", operation="read", path="/j/1.parquet", ids={"stream": "s"}, hint="fix"
    )
    error.__cause__ = StorageError("no such disk", path="/dev/null", hint="buy one")
    assert str(error) == (
        "block is damaged. Cause: StorageError: no such disk. Hint: fix"
        " [operation=read path=/j/1.parquet stream=s]"
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, PenstockError)])
def test_every_error_pickles_with_its_fields(kind: type[PenstockError]) -> None:
    error = kind("what", operation="do", path="p", ids={"batch": 3}, hint="fix")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.ids == {"batch": 3}


def test_the_tree_at_the_top_is_the_tree() -> None:
    drawn = inspect.getdoc(errors) or ""
    for kind in KINDS:
        if issubclass(kind, PenstockError):
            assert kind.__name__ in drawn
    assert issubclass(ConfigError, ValueError)


def test_the_message_shows_the_root_cause_and_repeats_nothing() -> None:
    root = OSError("the bucket does not exist")
    middle = RuntimeError("request failed: the bucket does not exist")
    lower = StorageError("cannot create", operation="create")
    top = ConfigError("the URL cannot be written", hint="check the name")
    top.__cause__, lower.__cause__, middle.__cause__ = lower, middle, root
    assert str(top) == (
        "the URL cannot be written. Cause: StorageError: cannot create. "
        "Cause: RuntimeError: request failed: the bucket does not exist. Hint: check the name"
    )


def test_a_cause_that_the_message_quotes_is_not_said_again() -> None:
    error = ConfigError("the file is damaged: it ends at byte 3", hint="restore it")
    error.__cause__ = ValueError("it ends at byte 3")
    assert str(error) == "the file is damaged: it ends at byte 3. Hint: restore it"
    error = ConfigError("no column of the file is 'a'")
    error.__cause__ = KeyError("a")
    assert str(error) == "no column of the file is 'a'. Cause: KeyError: 'a'."


def test_a_trace_below_the_first_cause_is_left_out() -> None:
    error, reason = PenstockError("the batch failed"), PenstockError("record 1 is bad")
    reason.__cause__ = RuntimeError("An error occurred\n\tat org.apache.spark\n\tat java.lang")
    error.__cause__ = reason
    assert str(error) == "the batch failed. Cause: PenstockError: record 1 is bad."
