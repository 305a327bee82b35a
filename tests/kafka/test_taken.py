"""Records that were read and are not stored yet."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.receivers.kafka.taken import Taken


def taken(*runs: tuple[str, list[int]]) -> Taken:
    values = [f"{part}:{n}" for part, offsets in runs for n in offsets]
    rows = pa.record_batch([pa.array(values)], names=["value"])
    return Taken.of_runs(rows, [(part, np.array(offsets)) for part, offsets in runs])


def values(records: Taken) -> list[str]:
    found: list[str] = records.rows["value"].to_pylist()
    return found


def test_a_part_of_what_was_taken() -> None:
    both = taken(("a/0", [3, 5]), ("a/1", [7]), ("a/0", [6]))
    assert both.ends() == {"a/0": 7, "a/1": 8}
    first, rest = both.before(2), both.after(2)
    assert (values(first), first.ends()) == (["a/0:3", "a/0:5"], {"a/0": 6})
    assert (values(rest), rest.ends()) == (["a/1:7", "a/0:6"], {"a/0": 7, "a/1": 8})
    assert values(first.followed_by(rest)) == values(both)


def test_what_a_group_takes_back_is_dropped() -> None:
    both = taken(("a/0", [3, 5]), ("a/1", [7]), ("a/0", [6]))
    left = both.without({"a/0"})
    assert (values(left), left.ends()) == (["a/1:7"], {"a/1": 8})
    assert len(both.without({"a/0", "a/1"})) == 0


def test_no_more_than_so_many_records_and_bytes() -> None:
    ten = taken(("a/0", [*range(10)]))
    size = ten.rows.nbytes
    assert len(ten.within(4, size)) == 4
    assert len(ten.within(10, size)) == 10
    assert len(ten.within(10, size - 1)) == 5
    assert len(ten.within(10, 1)) == 1
