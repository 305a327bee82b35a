"""Cutting a batch's range: what holds for any input, and what Spark once got wrong."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.rate import Carry, Cut, Lane, RangeLimits, cut_range


def cuts(end: dict[str, int], limits: RangeLimits, batches: int) -> list[Cut]:
    """Cut one batch after the other out of what there is."""
    start: dict[str, int] = {}
    carry, result = Carry(), []
    for _ in range(batches):
        cut = cut_range(start, end, limits, carry)
        result.append(cut)
        start, carry = cut.end, cut.carry
    return result


def taken(cut: Cut, start: dict[str, int]) -> dict[str, int]:
    return {partition: offset - start.get(partition, 0) for partition, offset in cut.end.items()}


def test_without_a_limit_all_is_taken() -> None:
    assert cut_range({"a": 5}, {"a": 9, "b": 3}, RangeLimits()) == Cut({"a": 9, "b": 3}, 7, Carry())


def test_the_limit_is_shared_by_lag() -> None:
    start, end = {"a": 1000}, {"a": 4000, "b": 1000, "c": 6000}
    assert taken(cut_range(start, end, RangeLimits(1003.0)), start) == {
        "a": 301,
        "b": 101,
        "c": 601,
    }


def test_a_partition_with_little_gets_its_record_beside_a_huge_one() -> None:
    cut = cut_range({}, {"huge": 10**9, "small": 1}, RangeLimits(10.0))
    assert cut.end == {"huge": 9, "small": 1}


def test_what_a_capped_partition_leaves_goes_to_the_others() -> None:
    end = {"a": 10**6, "b": 10**6, "c": 50}
    cut = cut_range({}, end, RangeLimits(1000.0, records_per_lane=600.0))
    assert cut.count == 1000
    assert max(cut.end.values()) <= 600
    assert cut_range({}, end, RangeLimits(None, records_per_lane=600.0)).count == 1250


@pytest.mark.parametrize("limit", [0.01, 0.3, 0.999, 1.0, 2.5, 17.9])
def test_small_limits_make_small_batches(limit: float) -> None:
    counts = [cut.count for cut in cuts({"a": 10**6, "b": 10**6}, RangeLimits(limit), 500)]
    assert sum(counts) == pytest.approx(limit * 500, abs=1)
    assert set(counts) <= {math.floor(limit), math.ceil(limit)}


def test_a_small_limit_of_a_partition_is_carried_too() -> None:
    counts = [c.count for c in cuts({"a": 10**6}, RangeLimits(None, records_per_lane=0.25), 40)]
    assert sum(counts) == 10
    assert max(counts) == 1


def test_with_fewer_records_than_partitions_each_gets_its_turn() -> None:
    end = {f"p{n}": 1000 * (n + 1) for n in range(10)}
    result = cuts(end, RangeLimits(3.0), 100)
    assert {cut.count for cut in result} == {3}
    assert set(result[-1].end.values()) == {30}


def test_what_a_batch_leaves_is_not_saved_up() -> None:
    limits, carry = RangeLimits(10.5), Carry()
    for _ in range(100):
        carry = cut_range({}, {"a": 0}, limits, carry).carry
    assert cut_range({}, {"a": 1000}, limits, carry).count <= 11


def test_least_records_of_a_partition() -> None:
    limits = RangeLimits(100.0, min_records_per_lane=20)
    assert cut_range({}, {"huge": 10**9, "small": 50, "tiny": 3}, limits).end == {
        "huge": 77,
        "small": 20,
        "tiny": 3,
    }


def epochs(partition: str) -> Lane:
    receiver, epoch = partition.split("-")
    return receiver, int(epoch)


def test_a_lane_is_read_in_order_and_counts_once() -> None:
    start, end = {"r0-9": 40}, {"r0-9": 50, "r0-10": 100, "r1-1": 110}
    cut = cut_range(start, end, RangeLimits(44.0), lane_of=epochs)
    assert taken(cut, start) == {"r0-9": 10, "r0-10": 12, "r1-1": 22}


def test_every_partition_stays_in_the_map() -> None:
    cut = cut_range({"a": 7}, {"a": 7, "b": 100, "c": 0}, RangeLimits(1.0))
    assert cut.end == {"a": 7, "b": 1, "c": 0}


PARTITIONS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10**6), max_size=8)
LIMITS = st.one_of(st.none(), st.floats(1e-3, 1e7))


@settings(max_examples=300)
@given(
    loads=st.lists(PARTITIONS, min_size=1, max_size=12),
    limit=LIMITS,
    per_lane=LIMITS,
    least=st.integers(1, 50),
    lanes=st.integers(1, 8),
)
def test_whatever_comes(
    loads: list[dict[str, int]],
    limit: float | None,
    per_lane: float | None,
    least: int,
    lanes: int,
) -> None:
    def lane_of(partition: str) -> Lane:
        place = ord(partition) - ord("a")
        return str(place % lanes), place

    limits = RangeLimits(limit, per_lane, least)
    start: dict[str, int] = {}
    carry = Carry()
    total, allowed = 0, 0.0
    for load in loads:
        end = {p: start.get(p, 0) + load.get(p, 0) for p in {*start, *load}}
        cut = cut_range(start, end, limits, carry, lane_of)
        steps = taken(cut, start)
        assert set(cut.end) == set(end)
        assert all(0 <= steps[p] <= end[p] - start.get(p, 0) for p in end)
        assert cut.count == sum(steps.values())
        check_lanes(steps, start, end, limits, lane_of)
        total, allowed = total + cut.count, allowed + (math.inf if limit is None else limit)
        assert cut.count < (math.inf if limit is None else limit + 1)
        assert total <= allowed + 1e-6
        assert 0 <= cut.carry.batch < 1
        assert all(-1 <= owed <= 1 for owed in cut.carry.shares.values())
        start, carry = cut.end, cut.carry


def check_lanes(
    steps: dict[str, int],
    start: dict[str, int],
    end: dict[str, int],
    limits: RangeLimits,
    lane_of: object,
) -> None:
    """Lanes keep to their limit, are read in order, and none starves while there is enough."""
    assert callable(lane_of)
    lanes: dict[str, list[str]] = {}
    for partition in sorted(end, key=lane_of):
        lanes.setdefault(lane_of(partition)[0], []).append(partition)
    for parts in lanes.values():
        count = sum(steps[p] for p in parts)
        lag = sum(end[p] - start.get(p, 0) for p in parts)
        if limits.records_per_lane is not None:
            assert count < limits.records_per_lane + 1
        elif limits.records is not None and limits.records >= limits.min_records_per_lane * 8:
            assert count >= min(lag, limits.min_records_per_lane)
        for earlier, later in pairwise(parts):
            assert not steps[later] or steps[earlier] == end[earlier] - start.get(earlier, 0)


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"end 3 lies before the start 5\. .*partition=a"):
        cut_range({"a": 5}, {"a": 3}, RangeLimits(1.0))


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["records", "records_per_lane", "min_records_per_lane"])
def test_wrong_limits_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        RangeLimits(**{name: value})  # type: ignore[arg-type]
