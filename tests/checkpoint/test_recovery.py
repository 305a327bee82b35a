"""The recovery table: any combination of ids is one row, and any legal crash one without error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, combinations, product
from typing import NamedTuple

import pytest

from penstock.checkpoint import RecoveryCase, RecoveryPlan, plan_recovery
from penstock.checkpoint.batch_life import BatchLives

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
        bool(o) and not has_hole(o) and all(i <= max(o) for i in c) and (min(o) == 0 or min(o) in c)
    ),
    RecoveryCase.START_LOST: lambda o, c: (
        bool(o)
        and not has_hole(o)
        and all(i <= max(o) for i in c)
        and min(o) > 0
        and min(o) not in c
        and any(i >= min(o) - 1 for i in c)
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
        (set(), {2, 3}, "committed, but their offsets are missing: offsets/3 not found"),
        ({0, 1, 4, 6}, {0}, "missing between others: offsets/2 to offsets/3, offsets/5 not found"),
        ({0, 1}, {0, 3}, "have no offsets: offsets/2 to offsets/3 not found"),
        ({4, 5}, {2}, "no commit shows that they were done: commits/3 not found"),
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

    offsets: Mapping[int, int] = {}
    """Each with its ``kept_from``."""
    commits: Ids = frozenset()
    planned: int = 0
    done: Ids = frozenset()

    @property
    def kept_from(self) -> int:
        return self.offsets[max(self.offsets)] if self.offsets else 0

    def key(self) -> tuple[object, ...]:
        return (frozenset(self.offsets.items()), *self[1:])

    def recovered(self) -> tuple[RecoveryPlan, BatchLives]:
        """As CheckpointLocation recovers: what is below ``kept_from`` means nothing."""
        kept, done = (
            [i for i in ids if i >= self.kept_from] for ids in (self.offsets, self.commits)
        )
        plan = plan_recovery(kept, done)
        return plan, BatchLives(plan, done, self.kept_from)


def successors(state: State) -> Iterator[State]:
    """Yield what one durable step of a driver makes of a state; any number of jobs run at once."""
    if state.planned < MAX_BATCHES:
        for retain in (1, 2):
            batch_id = state.planned
            kept_from = state.recovered()[1].begin_plan(batch_id, retain)
            offsets = {**state.offsets, batch_id: kept_from}
            yield state._replace(planned=batch_id + 1, offsets=offsets)
    for batch_id in set(range(state.planned)) - state.done:
        if batch_id in state.offsets:
            yield state._replace(commits=state.commits | {batch_id}, done=state.done | {batch_id})
    for batch_id in range(state.kept_from):  # a purge, and a power cut that takes part of it back
        if batch_id in state.offsets:
            rest = {i: kept for i, kept in state.offsets.items() if i != batch_id}
            yield state._replace(offsets=rest)
        yield state._replace(commits=state.commits - {batch_id})


def test_every_crash_of_the_protocol_recovers_to_the_truth() -> None:
    """Also with what a fenced driver left behind: any entry and commit below ``kept_from``."""
    reached, todo = {State().key()}, [State()]
    while todo:
        state = todo.pop()
        for left in (frozenset(), frozenset({0}), frozenset(range(state.kept_from))):
            old = {i: 0 for i in left if i < state.kept_from}
            found = state._replace(
                offsets={**old, **state.offsets}, commits=state.commits | set(old)
            )
            plan, _ = found.recovered()
            assert plan.error is None, found
            assert set(plan.rerun) == set(range(state.planned)) - state.done, found
            assert plan.next_batch_id == state.planned, found
        for following in successors(state):
            if following.key() not in reached:
                reached.add(following.key())
                todo.append(following)
    assert len(reached) > 100
