"""Offset maps of topics, and how far a batch goes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import KafkaDataLossError, RecoveryMismatchError
from penstock.kafka import KafkaRange
from penstock.kafka.offsets import from_json, ranges_between, to_json
from penstock.kafka.topics import advance


def test_the_form_of_offset_logs() -> None:
    flat = {"b.c-d/10": 3, "b.c-d/9": 2, "a/0": 1}
    nested = to_json(flat)
    assert list(nested["b.c-d"]) == ["9", "10"]
    assert nested == {"a": {"0": 1}, "b.c-d": {"9": 2, "10": 3}}
    assert from_json(nested) == flat
    assert from_json(None) == {}


@pytest.mark.parametrize("value", [7, {"lines": {"r0-00000001": 4}}, {"t": 1}, {"t": {"0": -1}}])
def test_offsets_of_other_inputs_are_refused(value: Any) -> None:
    with pytest.raises(RecoveryMismatchError, match="in the place of the offsets of Kafka topics"):
        from_json(value)


def test_ranges_hold_records() -> None:
    start, end = {"t/0": 5, "t/1": 7}, {"t/0": 9, "t/1": 7, "t/2": 3}
    assert ranges_between(start, end) == [KafkaRange("t", 0, 5, 9)]


def test_a_long_range_is_split_into_equal_parts() -> None:
    parts = KafkaRange("t", 0, 5, 15).split(4)
    assert [(p.start_offset, p.end_offset) for p in parts] == [(5, 8), (8, 11), (11, 15)]
    assert KafkaRange("t", 0, 5, 15).split(10) == [KafkaRange("t", 0, 5, 15)]


def test_a_new_partition_is_recorded_with_where_it_begins_before_it_is_read() -> None:
    begins, ends = {"t/0": 0, "t/1": 4}, {"t/0": 9, "t/1": 8}
    first = advance({"t/0": 5}, begins, ends)
    assert first == {"t/0": 9, "t/1": 4}
    assert advance(first, begins, ends) == ends


def test_a_partition_that_is_not_seen_stays() -> None:
    assert advance({"t/0": 5, "gone/0": 3}, {"t/0": 0}, {"t/0": 6}) == {"t/0": 6, "gone/0": 3}


@pytest.mark.parametrize(
    ("begin", "end", "what"),
    [(6, 9, r"\[5, 6\) of t/0 were deleted"), (0, 4, "t/0 ends at 4, before 5")],
)
def test_records_that_are_gone_are_told(begin: int, end: int, what: str) -> None:
    with pytest.raises(KafkaDataLossError, match=what):
        advance({"t/0": 5}, {"t/0": begin}, {"t/0": end})
