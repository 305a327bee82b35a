"""The recovery table: any combination of ids is one row, and any legal crash one without error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, combinations, product
from typing import NamedTuple

import pytest

from penstock.checkpoint import RecoveryCase, RecoveryPlan, plan_recovery
from penstock.checkpoint.ledger import BatchLedger
from penstock.errors import CheckpointError

Ids = frozenset[int]
MAX_BATCHES = 5


def subsets(size: int) -> Iterator[Ids]:
    ids = range(size)
    return map(frozenset, chain.from_iterable(combinations(ids, n) for n in range(size + 1)))


def has_hole(ids: Ids) -> bool:
    return max(ids) - min(ids) + 1 != len(ids)


# The rows of the table in penstock.checkpoint.recovery, each by itself.
ROWS: dict[RecoveryCase, Callable[[Ids, Ids], bool]] = {
    RecoveryCase.FRESH: lambda o, c: not o and not c,
    RecoveryCase.OFFSETS_LOST: lambda o, c: not o and bool(c),
    RecoveryCase.OFFSETS_GAP: lambda o, c: bool(o) and has_hole(o),
    RecoveryCase.COMMIT_AHEAD: lambda o, c: (
        bool(o) and not has_hole(o) and any(i > max(o) for i in c)
    ),
    RecoveryCase.COMMITS_LOST: lambda o, c: (
        bool(o) and not has_hole(o) and min(o) > 0 and all(i < min(o) - 1 for i in c)
    ),
    RecoveryCase.RESUME: lambda o, c: (
        bool(o)
        and not has_hole(o)
        and all(i <= max(o) for i in c)
        and (min(o) == 0 or any(i >= min(o) - 1 for i in c))
    ),
}


def test_each_combination_is_one_row_of_the_table() -> None:
    for offsets, commits in product(subsets(6), subsets(6)):
        rows = [case for case, holds in ROWS.items() if holds(offsets, commits)]
        plan = plan_recovery(offsets, commits)
        assert rows == [plan.case], (offsets, commits)
        if plan.case is RecoveryCase.RESUME:
            assert plan.rerun == tuple(sorted(offsets - commits))
            assert plan.next_batch_id == max(offsets) + 1
            assert plan.error is None
        elif plan.case is RecoveryCase.FRESH:
            assert plan == RecoveryPlan(RecoveryCase.FRESH)
        else:
            assert plan.error is not None
            assert plan.rerun == ()


@pytest.mark.parametrize(
    ("offsets", "commits", "expected"),
    [
        (set(), {2, 3}, "committed, but their offsets are gone: offsets/3 not found"),
        ({0, 1, 4, 6}, {0}, "missing between others: offsets/2 to offsets/3, offsets/5 not found"),
        ({0, 1}, {0, 3}, "have no offsets: offsets/2 to offsets/3 not found"),
        ({4, 5}, {2}, "no commit says that they were done: commits/3 not found"),
    ],
)
def test_an_error_names_the_missing_files(
    offsets: set[int], commits: set[int], expected: str
) -> None:
    error = plan_recovery(offsets, commits).error
    assert error is not None
    assert error.endswith(expected)


def test_a_gap_of_any_width_is_named_at_once() -> None:
    error = plan_recovery({0, 10**18}, set()).error
    assert error is not None
    assert f"offsets/1 to offsets/{10**18 - 1}" in error


class State(NamedTuple):
    """What is on disk, and what is true: how many batches were planned, which are done."""

    offsets: Ids = frozenset()
    commits: Ids = frozenset()
    planned: int = 0
    done: Ids = frozenset()


def successors(state: State) -> Iterator[State]:
    """Yield what one durable step of a driver makes of a state; any number of jobs run at once."""
    if state.planned < MAX_BATCHES:
        batch_id = state.planned
        yield state._replace(planned=batch_id + 1, offsets=state.offsets | {batch_id})
    for batch_id in set(range(state.planned)) - state.done:
        if batch_id in state.offsets:
            yield state._replace(commits=state.commits | {batch_id}, done=state.done | {batch_id})
    ledger = BatchLedger(plan_recovery(state.offsets, state.commits), state.commits)
    for min_batches_to_retain in (1, 2):
        yield from purges(state, ledger.keep_from(min_batches_to_retain))


def purges(state: State, keep_from: int) -> Iterator[State]:
    """Yield the state after each delete of a purge."""
    for batch_id in sorted(i for i in state.offsets if i < keep_from):
        state = state._replace(offsets=state.offsets - {batch_id})
        yield state
    for batch_id in sorted(i for i in state.commits if i < keep_from):
        state = state._replace(commits=state.commits - {batch_id})
        yield state


def test_every_crash_of_the_protocol_recovers_to_the_truth() -> None:
    reached, todo = {State()}, [State()]
    while todo:
        state = todo.pop()
        plan = plan_recovery(state.offsets, state.commits)
        assert plan.error is None, state
        assert set(plan.rerun) == set(range(state.planned)) - state.done, state
        assert plan.next_batch_id == state.planned, state
        fresh = set(successors(state)) - reached
        reached |= fresh
        todo += fresh
    assert len(reached) > 100


def ledger_of(offsets: set[int], commits: set[int]) -> BatchLedger:
    return BatchLedger(plan_recovery(offsets, commits), commits)


@pytest.mark.parametrize(
    ("offsets", "commits", "retain", "kept"),
    [
        (set(), set(), 1, 0),
        ({0}, set(), 1, 0),
        (set(range(102)), set(range(101)), 100, 1),  # as Spark: 100 besides the newest
        (set(range(10)), set(range(10)), 3, 6),
        (set(range(10)), set(range(10)), 100, 0),
        (set(range(10)), set(range(10)) - {2}, 3, 1),  # not done yet, and where it begins
        (set(range(10)), {0, 1}, 1, 1),  # the newest that is done
        (set(range(10)), {9}, 1, 0),
    ],
)
def test_what_is_kept(offsets: set[int], commits: set[int], retain: int, kept: int) -> None:
    assert ledger_of(offsets, commits).keep_from(retain) == kept


def test_batches_are_planned_in_order_and_committed_after() -> None:
    ledger = ledger_of({0, 1}, {0})
    ledger.check_plan(1)  # repeated
    ledger.check_plan(2)
    with pytest.raises(CheckpointError, match="batch 3 is planned, but 2 is the next"):
        ledger.check_plan(3)
    ledger.check_commit(1)
    with pytest.raises(CheckpointError, match="batch 2 is committed, but was never planned"):
        ledger.check_commit(2)
