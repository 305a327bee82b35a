"""When a group is published, as a table."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError
from penstock.journal import CommitPolicy
from penstock.journal.writer.commit_policy import GroupFacts

POLICY = CommitPolicy(
    block_interval_ms=200, spacing_ms=5, max_block_bytes=1000, max_block_records=10
)
LONG_AGO = float("-inf")

# count, bytes, first store, first waiter, last publish, publishing -> due
TABLE = {
    "idle, somebody waits: at once": (1, 9, 50.0, 50.0, LONG_AGO, False, 50.0),
    "nobody waits: at the block interval": (1, 9, 50.0, None, LONG_AGO, False, 50.2),
    "under load: a few ms after the last": (1, 9, 50.0, 50.0, 49.998, False, 50.003),
    "the last was long enough ago": (1, 9, 50.0, 50.0, 49.99, False, 50.0),
    "a waiter that came late": (1, 9, 50.0, 50.1, 49.0, False, 50.1),
    "a waiter after the interval": (1, 9, 50.0, 50.3, 49.0, False, 50.2),
    "while publishing: not before its end": (1, 9, 50.0, 50.0, 49.9, True, None),
    "full of bytes: at once": (1, 1000, 50.0, None, 49.999, False, 50.0),
    "full of records: at once": (10, 9, 50.0, None, 49.999, False, 50.0),
    "full while publishing: at once": (10, 9, 50.0, None, 49.999, True, 50.0),
    "one less than full": (9, 999, 50.0, None, LONG_AGO, False, 50.2),
    "acks alone cost no publish": (0, 0, 0.0, 50.0, 49.999, False, 50.0),
    "acks alone wait for their turn": (0, 0, 0.0, 50.0, 49.999, True, None),
    "many acks alone are not full": (0, 5000, 0.0, 50.0, 49.999, True, None),
}


@pytest.mark.parametrize("case", TABLE)
def test_due(case: str) -> None:
    count, size, store, waiter, last, publishing, due = TABLE[case]
    facts = GroupFacts(count, size, store, waiter)
    found = POLICY.due_s(facts, last, publishing=publishing)
    assert found == (None if due is None else pytest.approx(due))


@pytest.mark.parametrize(
    "bounds",
    [
        {"block_interval_ms": 0},
        {"spacing_ms": -1},
        {"max_block_bytes": 0},
        {"max_block_records": -5},
    ],
)
def test_bounds_that_make_no_sense_are_refused(bounds: dict[str, int]) -> None:
    (name,) = bounds
    with pytest.raises(ConfigError, match=name):
        CommitPolicy(**bounds)


def test_no_spacing_is_allowed() -> None:
    facts = GroupFacts(1, 9, 50.0, 50.0)
    assert CommitPolicy(spacing_ms=0).due_s(facts, 49.9999, publishing=False) == 50.0
