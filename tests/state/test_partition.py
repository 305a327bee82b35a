"""A partition: versions, attempts, local copies, merging and retention."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, MissingStateError, StateError, StateKeyError
from penstock.state import State, local_copies
from penstock.state.layers import FAN_IN
from tests.waiting import WAIT_S

from .helpers import Model, Runner, add_up


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def kinds(runner: Runner) -> set[str]:
    return {name.rpartition(".")[2] for name in runner.files()}


def test_a_batch_sees_its_own_changes_in_order(runner: Runner) -> None:
    tip = runner.batch(None, [("a", 1), ("a", 2), ("b", 5), ("a", 0), ("a", 7)], 1000)
    assert runner.state(tip) == {"a": 7, "b": 5}
    assert runner.outputs(tip, 1000) == [("a", None), ("a", 1), ("b", None), ("a", 3), ("a", None)]


def test_a_batch_without_changes_and_outputs_leaves_nothing(runner: Runner) -> None:
    tip = runner.batch(None, [("a", 1)], 1000)
    assert runner.batch(tip, [], 2000) == tip
    assert runner.batch(tip, [("b", 1)], 3000, function=lambda *_: None) == tip
    assert runner.outputs(tip, 2000) == []
    assert len(runner.files()) == 1


def test_what_is_got_is_a_copy(runner: Runner) -> None:
    def mutate(key: str, value: int, state: State[list[int]]) -> list[int]:
        kept = state.get() if state.exists() else []
        kept.append(value)
        if value < 3:
            state.update(kept)
        return kept

    tip = runner.batch(None, [("a", 1), ("a", 2), ("a", 3), ("a", 4)], 1000, function=mutate)
    assert runner.outputs(tip, 1000)[-1] == [1, 2, 4]
    assert runner.state(tip) == {"a": [1, 2]}


def test_timeouts_are_counted_in_batch_time_from_the_last_record(runner: Runner) -> None:
    first = runner.batch(None, [("a", 1), ("b", 1), ("c", 1)], 1000, timeout_ms=2000)
    touched = runner.batch(first, [("b", -1)], 2000, timeout_ms=2000)
    on_time = runner.batch(touched, [], 3000, timeout_ms=2000)
    assert on_time == touched  # idle for just the timeout is not too long
    late = runner.batch(on_time, [("c", 1)], 3001, timeout_ms=2000)
    assert runner.outputs(late, 3001) == [("c", 1), ("a", "timed out", 1)]
    assert runner.state(late) == {"b": 1, "c": 2}


def test_keys_time_out_in_the_order_in_which_they_went_idle(runner: Runner) -> None:
    tip = None
    for time_ms, key in enumerate("cab", start=1):
        tip = runner.batch(tip, [(key, 1)], time_ms, timeout_ms=100)
    tip = runner.batch(tip, [], 1000, timeout_ms=100)
    assert [key for key, _, _ in runner.outputs(tip, 1000)] == ["c", "a", "b"]


def test_a_key_without_timeout_is_touched_by_updates_only(runner: Runner) -> None:
    first = runner.batch(None, [("a", 1)], 1000)
    assert runner.batch(first, [("a", -1)], 5000, function=lambda *_: None) == first
    last = runner.batch(first, [], 9000, timeout_ms=7999)
    assert runner.outputs(last, 9000) == [("a", "timed out", 1)]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda key, value, state: state.update(lambda: 0), StateError, "state of key 'a'"),
        (lambda key, value, state: lambda: 0, StateError, "a value that the function returned"),
        (lambda key, value, state: state.get(), StateError, "State is not set"),
    ],
)
def test_a_function_that_does_what_it_must_not(
    runner: Runner, function: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        runner.batch(None, [("a", 1)], 1000, function=function)
    assert runner.state(None) == {}


def test_a_key_that_cannot_have_state(runner: Runner) -> None:
    with pytest.raises(StateKeyError, match="NaN does not equal itself"):
        runner.batch(None, [(float("nan"), 1)], 1000)


# -- attempts --


def test_of_two_attempts_the_quicker_wins_and_both_say_so(runner: Runner) -> None:
    tip = runner.batch(None, [("a", 1)], 1000)
    quick = runner.batch(tip, [("a", 5)], 2000, function=add_up)
    slow = runner.batch(tip, [("a", 7)], 2000, function=add_up)  # a function of chance
    assert quick == slow
    assert runner.state(slow) == {"a": 6}


def test_attempts_at_once_on_one_executor(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copies, "_PATIENCE_S", 0.05)
    tip = runner.batch(None, [("a", 1), ("b", 2)], 1000)
    with runner.partition.open(tip):  # an attempt that hangs
        after = runner.batch(tip, [("a", 1)], 2000)
        assert runner.state(after) == {"a": 2, "b": 2}
        assert runner.batch(after, [("b", 1)], 3000) != after
    left = {path.name for path in Path(runner.place, "executor").rglob("*.sqlite*")}
    assert left == {f"00000.sqlite{end}" for end in ("", "-journal", ".lock")}  # no private copies


def test_a_copy_waits_for_its_lock(runner: Runner) -> None:
    tip = runner.batch(None, [("a", 1)], 1000)
    holding, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with runner.partition.open(tip):
            holding.set()
            let_go.wait(WAIT_S)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(WAIT_S)
    threading.Timer(0.1, let_go.set).start()
    assert runner.state(tip) == {"a": 1}
    thread.join()


def test_what_an_attempt_left_is_not_built_on(runner: Runner, tmp_path: Path) -> None:
    tip = runner.batch(None, [("a", 1)], 1000)
    left = runner.batch(tip, [("a", 100)], 2000)  # then the driver dies, and publishes nothing
    assert left != tip
    again = Runner(tmp_path, run="00000002")
    done = again.batch(tip, [("a", 1)], 2000)
    assert again.state(done) == {"a": 2}
    assert again.outputs(done, 2000) == [("a", 1)]


def test_an_attempt_that_is_late_does_not_take_the_copy_back(runner: Runner) -> None:
    first = runner.batch(None, [("a", 1)], 1000)
    second = runner.batch(first, [("a", 1)], 2000)
    third = runner.batch(second, [("a", 1)], 3000)
    assert runner.state(third) == {"a": 3}
    assert runner.batch(first, [("a", 9)], 2000) == second  # of an earlier batch, and adopted
    assert runner.state(first) == {"a": 1}
    assert runner.state(third) == {"a": 3}


# -- local copies --


def test_a_copy_on_another_executor_catches_up(runner: Runner, tmp_path: Path) -> None:
    model, tip = Model(), None
    others = [Runner(tmp_path, executor=name) for name in ("one", "two", "three")]
    for number in range(1, 60):
        records = [(number % 7, 1), (number % 5, 2)]
        model.update(records, number, None)
        tip = others[number * number % 3].batch(tip, records, number)
    assert runner.state(tip) == model.sums
    assert [other.state(tip) for other in others] == [model.sums] * 3


def test_a_damaged_copy_is_made_again(runner: Runner) -> None:
    tip = runner.batch(None, [(n, 1) for n in range(2000)], 1000)
    assert len(runner.state(tip)) == 2000
    (copy,) = Path(runner.place, "executor").rglob("*.sqlite")
    size = copy.stat().st_size
    for damage in (b"", b"nonsense" * 100, copy.read_bytes()[: size // 2]):
        copy.write_bytes(damage)
        after = None
        for _ in range(2):  # damage that is met in the middle fails one attempt
            try:
                after = runner.state(tip)
                break
            except StateError:
                assert not copy.exists()
        assert after == {n: 1 for n in range(2000)}


def test_a_copy_is_for_its_user_only(runner: Runner) -> None:
    runner.batch(None, [("a", 1)], 1000)
    (copy,) = Path(runner.place, "executor").rglob("*.sqlite")
    assert copy.parent.stat().st_mode & 0o777 == 0o700


def test_a_copy_in_a_folder_that_others_may_write_is_not_read(runner: Runner) -> None:
    """Its folder may have been removed from /tmp, and created again by another user."""
    tip = runner.batch(None, [("a", 1)], 1000)
    (copy,) = Path(runner.place, "executor").rglob("*.sqlite")
    copy.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by other users, and reading pickles"):
        runner.state(tip)
    copy.parent.chmod(0o700)
    assert runner.state(tip) == {"a": 1}


# -- files --


def test_layers_are_merged_and_old_files_deleted(runner: Runner) -> None:
    model, tips = Model(), [None]
    for number in range(1, 4 * FAN_IN):
        records = [(number % 10, number % 3), (number, 1)]
        model.update(records, number, None)
        tips.append(runner.batch(tips[-1], records, number, oldest_tip=tips[-3:][0]))
    assert kinds(runner) == {"delta", "pack"}
    assert len(runner.files()) <= 2 * FAN_IN + 4
    for tip in tips[-3:]:  # of all versions that are kept
        assert Runner(runner.place, executor="fresh").state(tip) is not None
    assert Runner(runner.place, executor="afresh").state(tips[-1]) == model.sums


def test_snapshots_follow_the_bytes_of_changes(runner: Runner, tmp_path: Path) -> None:
    def keep(key: int, value: bytes, state: State[bytes]) -> None:
        state.update(value)

    tip, wanted = None, {}
    for number in range(1, 30):
        values: list[Any] = [(number % 8, os.urandom(100_000)), (number, b"x")]
        wanted.update(values)
        tip = runner.batch(tip, values, number, function=keep, oldest_tip=tip)
    assert kinds(runner) >= {"delta", "snapshot"}
    assert sum(name.endswith(".snapshot") for name in runner.files()) <= 2
    assert Runner(tmp_path, executor="fresh").state(tip) == wanted
    assert not list(tmp_path.rglob("*.sqlite.*.snapshot"))


def test_initial_state(runner: Runner, tmp_path: Path) -> None:
    tip = runner.partition.load(((n % 900, n) for n in range(1000)), touched_ms=500)
    assert tip is not None
    wanted = {n % 900: n for n in range(1000)}
    assert runner.state(tip) == wanted
    assert runner.partition.load([(1, 1)], 500) == tip  # a second attempt
    again = runner.batch(tip, [], 1501, timeout_ms=1000)
    assert runner.state(again) == {}
    assert len(runner.outputs(again, 1501)) == 900
    assert runner.partition.load([], 500) is None


def test_a_missing_file_is_named(runner: Runner) -> None:
    first = runner.batch(None, [("a", 1)], 1000)
    second = runner.batch(first, [("a", 1)], 2000)
    (runner.place / "state" / "sums" / "00000" / str(first)).unlink()
    with pytest.raises(MissingStateError, match=rf"missing.*{first}.*Hint: restore"):
        Runner(runner.place, executor="fresh").state(second)


def test_a_copy_that_was_cut_off_while_it_was_removed_is_not_taken_for_whole(
    runner: Runner,
) -> None:
    """A journal that is left beside nothing, or beside a new database, changes nothing."""
    tip = runner.batch(None, [(n, 1) for n in range(500)], 1000)
    assert len(runner.state(tip)) == 500
    (copy,) = Path(runner.place, "executor").rglob("*.sqlite")
    with closing(sqlite3.connect(copy, isolation_level=None)) as cut_off:
        cut_off.execute("PRAGMA cache_size = 1")
        cut_off.execute("BEGIN")
        cut_off.execute("UPDATE state SET touched_ms = 7")
        journal = Path(f"{copy}-journal").read_bytes()
        cut_off.execute("ROLLBACK")
    assert len(journal) > 4096
    copy.unlink()
    Path(f"{copy}-journal").write_bytes(journal)
    assert runner.state(tip) == {n: 1 for n in range(500)}
