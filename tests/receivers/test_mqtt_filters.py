"""Topic filters: which one covers which, and in what packets they are subscribed to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.receivers.mqtt.topic_filters import overlapping, uncovered


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (["plant/#", "plant/+/state"], ["plant/#"]),
        (["plant/+/state", "plant/#"], ["plant/#"]),
        (["a", "a", "b"], ["a", "b"]),
        (["a/#", "a"], ["a/#"]),  # a/# matches a
        (["a/+", "a/#", "a/b"], ["a/#"]),
        (["a/+", "a/b/c"], ["a/+", "a/b/c"]),
        (["a/+", "a"], ["a/+", "a"]),
        (["+/b", "a/+"], ["+/b", "a/+"]),
        (["#", "$SYS/#", "x"], ["#", "$SYS/#"]),
        (["+/x", "$SYS/x"], ["+/x", "$SYS/x"]),
        (["$SYS/#", "$SYS/broker/+"], ["$SYS/#"]),
        (["#", "$share/g/a"], ["#", "$share/g/a"]),
        (["$share/g/#", "$share/g/a", "$share/h/a"], ["$share/g/#", "$share/h/a"]),
        (["$share/g/#", "$share/g/$SYS/a"], ["$share/g/#", "$share/g/$SYS/a"]),
        (["/a", "a", "+/a"], ["a", "+/a"]),
    ],
)
def test_a_filter_that_another_one_covers_is_left_out(filters: list[str], kept: list[str]) -> None:
    assert uncovered(filters) == tuple(kept)


def matches(topic_filter: str, topic: str) -> bool:
    """MQTT 5, 4.7, word by word."""
    wanted, levels = topic_filter.split("/"), topic.split("/")
    if levels[0].startswith("$") and wanted[0] in ("#", "+"):
        return False
    for number, level in enumerate(wanted):
        if level == "#":
            return True
        if number >= len(levels) or level not in ("+", levels[number]):
            return False
    return len(wanted) == len(levels)


levels = st.sampled_from(["a", "b", "", "$a"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join)
filters = st.tuples(
    st.lists(st.sampled_from(["a", "b", "", "$a", "+"]), max_size=3), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join([*parts[0], *parts[1]] or ["+"]))


@given(st.lists(filters, min_size=1, max_size=4), topics)
def test_what_is_left_matches_the_same_topics(given_filters: list[str], topic: str) -> None:
    left = uncovered(given_filters)
    assert any(matches(each, topic) for each in left) == any(
        matches(each, topic) for each in given_filters
    )
    both = [each for each in left if matches(each, topic)]
    pairs = overlapping(left)
    assert len(both) < 2 or (both[0], both[1]) in pairs


def test_overlaps_that_no_filter_covers_are_found() -> None:
    assert overlapping(["a/+", "+/b", "c/d/#"]) == [("a/+", "+/b")]
    assert overlapping(["a/+/c", "a/b/#", "a"]) == [("a/+/c", "a/b/#")]
    assert overlapping(["#", "$SYS/a", "$share/g/x"]) == []
