"""Offset maps of topics, and how far a batch goes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ConfigError, KafkaDataLossError, RecoveryMismatchError
from penstock.kafka import KafkaRange
from penstock.kafka.advance import advance
from penstock.kafka.losses import loss_partition
from penstock.kafka.offsets import at_given, from_json, ids_in, ranges_between, to_json
from penstock.model import OffsetRange


def test_the_form_of_offset_logs() -> None:
    flat = {"b.c-d/10": 3, "b.c-d/9": 2, "a/0": 1}
    nested = to_json(flat)
    assert list(nested["b.c-d"]) == ["9", "10"]
    assert nested == {"a": {"0": 1}, "b.c-d": {"9": 2, "10": 3}}
    assert from_json(nested) == flat
    assert from_json(None) == {}


@pytest.mark.parametrize(
    "value",
    [
        7,
        {"a@b": {"0": 1}},
        {"lines": {"r0-00000001": 4}},
        {"t": 1},
        {"t": {"0": -1}},
        {"t": {"9" * 5000: 1}},
        {f"t@{'x' * 22}": {"0": 1}},
    ],
    ids=map(str, range(7)),
)
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
    first = advance({"t/0": 5}, begins, ends).ends
    assert first == {"t/0": 9, "t/1": 4}
    assert advance(first, begins, ends).ends == ends


def test_a_partition_that_is_not_seen_stays() -> None:
    plan = advance({"t/0": 5, "gone/0": 3}, {"t/0": 0}, {"t/0": 6})
    assert plan.ends == {"t/0": 6, "gone/0": 3}


@pytest.mark.parametrize(
    ("name", "begin", "end", "what"),
    [
        ("t/0", 6, 9, r"\[5, 6\) of t/0 were deleted.*on_data_loss='earliest'"),
        ("t/0", 0, 4, "t/0 ends at 4, before 5"),
    ],
)
def test_records_that_are_gone_are_told(name: str, begin: int, end: int, what: str) -> None:
    with pytest.raises(KafkaDataLossError, match=what):
        advance({"t/0": 5}, {name: begin}, {name: end})


@pytest.mark.parametrize(
    ("name", "begin", "end", "policy", "starts", "ends", "lost"),
    [
        ("t/0", 6, 9, "earliest", {"t/0": 6}, {"t/0": 9}, (5, 6)),
        ("t/0", 6, 9, "latest", {"t/0": 9}, {"t/0": 9}, (5, 9)),
        ("t/0", 0, 4, "earliest", {"t/0": 4}, {"t/0": 4}, (5, 5)),
        ("t/0", 0, 4, "latest", {"t/0": 4}, {"t/0": 4}, (5, 5)),
    ],
)
def test_a_batch_passes_over_what_is_lost(
    name: str,
    begin: int,
    end: int,
    policy: Any,
    starts: dict[str, int],
    ends: dict[str, int],
    lost: tuple[int, int],
) -> None:
    plan = advance({"t/0": 5}, {name: begin}, {name: end}, policy)
    assert (plan.starts, plan.ends) == (starts, ends)
    assert [(loss.name, loss.start_offset, loss.end_offset) for loss in plan.losses] == [
        ("t/0", *lost)
    ]


def test_a_loss_that_is_noted_is_passed_over_again() -> None:
    """Also where the program was killed between the note and the entry of the offset log."""
    noted = {"t-0": [OffsetRange("t-0", 5, 9)]}
    plan = advance({"t/0": 5}, {"t/0": 7}, {"t/0": 12}, "latest", noted)
    assert (plan.starts, plan.ends, plan.losses) == ({"t/0": 9}, {"t/0": 12}, [])
    plan = advance({"t/0": 5}, {"t/0": 7}, {"t/0": 12}, "fail", noted)
    assert plan.losses == []


def test_ids_of_topics_stand_beside_their_offsets() -> None:
    ids = {"a": "kGl1ZW50LWNsaWNrcy0wMQ", "old": None, "not-read": "kGl1ZW50LWNsaWNrcy0wMg"}
    nested = to_json({"a/0": 7, "old/0": 3}, ids)
    assert nested == {"a": {"0": 7}, "old": {"0": 3}, f"a@{ids['a']}": {}}
    assert from_json(nested) == {"a/0": 7, "old/0": 3}
    assert ids_in(nested) == {"a": ids["a"]}
    assert ids_in(None) == {}


def test_what_the_loss_log_calls_a_partition_fits_a_file_name() -> None:
    assert loss_partition("a.b-c/12") == "a.b-c-12"
    names = {loss_partition(f"{'x' * 200}{n}/0") for n in range(3)}
    assert len(names) == 3
    assert max(map(len, names)) < 180


def test_parts_of_a_range_begin_with_cells() -> None:
    parts = KafkaRange("t", 0, 5, 45).split(12, 10)
    assert [(p.start_offset, p.end_offset) for p in parts] == [
        (5, 10),
        (10, 20),
        (20, 30),
        (30, 45),
    ]
    assert KafkaRange("t", 0, 5, 9).split(2, 10) == [KafkaRange("t", 0, 5, 9)]


def test_offsets_that_are_given_are_held() -> None:
    begins, ends = {"t/0": 3, "t/1": 0, "t/2": 1}, {"t/0": 9, "t/1": 5, "t/2": 4}
    found = at_given({"t": {0: -1, 1: -2}}, begins, ends, "test")
    assert found == {"t/0": 9, "t/1": 0, "t/2": 1}
    assert at_given({"t": {0: 3, 2: 4}}, begins, ends, "test") == {"t/0": 3, "t/1": 0, "t/2": 4}
    for offset in (-3, 0, 2, 10):
        with pytest.raises(ConfigError, match=rf"offset {offset} of t/0.*holds \[3, 9\)"):
            at_given({"t": {0: offset}}, begins, ends, "test")
