"""The state machine of a batch: its table, its order, what may be released and what is kept."""

from __future__ import annotations

import itertools

import pytest

from penstock.checkpoint import plan_recovery
from penstock.checkpoint.batch_life import BatchLives, BatchState
from penstock.errors import CheckpointError

PLANNED, RUNNING, COMMITTED, CONFIRMED, RELEASED, FAILED = BatchState


def lives_of(offsets: set[int], commits: set[int]) -> BatchLives:
    return BatchLives(plan_recovery(offsets, commits), commits)


def move(lives: BatchLives, batch_id: int, *states: BatchState) -> None:
    for state in states:
        lives.enter(batch_id, state)


def test_the_steps_are_those_of_the_diagram() -> None:
    steps = {(a, b) for a, b in itertools.product(BatchState, BatchState) if a.may_become(b)}
    assert steps == {
        (PLANNED, RUNNING),
        (RUNNING, COMMITTED),
        (COMMITTED, CONFIRMED),
        (CONFIRMED, RELEASED),
        (PLANNED, FAILED),
        (RUNNING, FAILED),
    }


@pytest.mark.parametrize("state", [COMMITTED, CONFIRMED, RELEASED])
def test_a_step_that_the_table_lacks_is_refused(state: BatchState) -> None:
    lives = lives_of({0}, set())
    with pytest.raises(CheckpointError, match=f"is planned and cannot become {state.value}"):
        lives.enter(0, state)


def test_batches_are_planned_in_order_and_committed_after() -> None:
    lives = lives_of({0, 1}, {0})
    for batch_id in (1, 3):
        with pytest.raises(CheckpointError, match=f"batch {batch_id} is planned, but 2 is the"):
            lives.begin_plan(batch_id, 1)
    with pytest.raises(CheckpointError, match="batch 2 was never planned and cannot become comm"):
        lives.check(2, COMMITTED)


def test_a_plan_that_is_repeated_writes_the_same_entry() -> None:
    lives = lives_of({0, 1, 2}, {0})
    first = lives.begin_plan(3, 1)
    for batch_id in (1, 2):
        move(lives, batch_id, RUNNING, COMMITTED)
    assert lives.begin_plan(3, 1) == first


def test_only_what_is_confirmed_and_behind_all_others_is_released() -> None:
    lives = lives_of({0, 1, 2, 3}, set())
    move(lives, 1, RUNNING, COMMITTED, CONFIRMED)
    assert lives.release() is None  # batch 0 runs
    move(lives, 0, RUNNING, COMMITTED)
    assert lives.release() is None  # nobody looked for another driver since
    lives.enter(0, CONFIRMED)
    assert lives.release() == 1
    move(lives, 2, RUNNING, FAILED)
    move(lives, 3, RUNNING, COMMITTED, CONFIRMED)
    assert lives.release() is None  # batch 2 runs again, in the next run
    assert lives.ended_until() == 3  # and not in this one
    assert lives.undone() == [2]


def test_what_a_run_before_committed_is_released_once_no_other_driver_is_seen() -> None:
    lives = lives_of({0, 1, 2}, {0, 2})
    move(lives, 1, RUNNING, COMMITTED)
    assert lives.committed() == [1, 2]


@pytest.mark.parametrize(
    ("listed", "fenced"), [((), False), ((0, 1), False), ((2,), True), ((0, 1, 2), True)]
)
def test_a_batch_that_this_run_did_not_plan_fences_it(
    listed: tuple[int, ...], fenced: bool
) -> None:
    lives = lives_of({0, 1}, {0})
    assert lives.is_fenced(listed) is fenced
    lives.begin_plan(2, 1)
    assert lives.is_fenced((*listed, 2)) is False
    assert lives.is_fenced((*listed, 3)) is True


@pytest.mark.parametrize(
    ("offsets", "commits", "retain", "kept"),
    [
        (set(), set(), 1, 0),
        ({0}, set(), 1, 0),
        (set(range(110)), set(range(110)), 100, 10),  # as Spark: 100 besides the newest
        (set(range(109)), set(range(109)), 100, 0),  # ten go at a time
        (set(range(10)), set(range(10)), 3, 7),
        (set(range(10)), set(range(10)), 100, 0),
        (set(range(10)), set(range(10)) - {2}, 3, 1),  # not done yet, and where it begins
        (set(range(10)), {0, 1}, 1, 1),  # the newest that is done
        (set(range(10)), {9}, 1, 0),
    ],
)
def test_what_is_kept(offsets: set[int], commits: set[int], retain: int, kept: int) -> None:
    assert lives_of(offsets, commits).begin_plan(len(offsets), retain) == kept


def test_what_is_needed_is_kept_with_the_batch_before_it() -> None:
    assert lives_of(set(range(10)), set(range(10))).begin_plan(10, 1, needed_from=4) == 3
