"""Where a read of topics begins and ends, by words, offsets or times."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import ConfigError
from penstock.kafka.offsets import KafkaRange, at_given, partition_name, ranges_between, split_name
from penstock.kafka.topics import TopicFacts
from penstock.model import Offsets
from penstock.structured.kafka.options import Bound, KafkaOptions, Times

_AtTime = Callable[[int, TopicFacts], Offsets]
"""Each partition's first offset at or after a time, its end without one."""


def start_of(options: KafkaOptions, bound: Bound, facts: TopicFacts, at_time: _AtTime) -> Offsets:
    """Return where a read begins in each partition.

    Raises:
        ConfigError: a partition does not exist, does not hold an offset, or has no record of a
            time or later, and ``startingOffsetsByTimestampStrategy`` is "error".
        KafkaError: the brokers do not answer.
    """
    found = _resolve("startingOffsets", bound, facts, at_time)
    strategy = options.values["startingOffsetsByTimestampStrategy"]
    if isinstance(bound, Times) and strategy == "error":
        timed = _timed(bound, facts)
        if late := sorted(name for name in timed if found[name] == facts.ends[name]):
            raise ConfigError(
                f"{', '.join(late)} has no record of the starting time or later",
                operation="begin query",
                ids={"option": "startingTimestamp"},
                hint="give an earlier time, or startingOffsetsByTimestampStrategy=latest to begin "
                "at the end",
            )
    return found


def batch_ranges(options: KafkaOptions, facts: TopicFacts, at_time: _AtTime) -> list[KafkaRange]:
    """Return the ranges of ``spark.read``.

    Raises as ``start_of``.
    """
    starting = options.starting or "earliest"
    if starting == "latest":
        raise ConfigError(
            "option startingOffsets is 'latest', and a batch read ends there",
            operation="read options",
            ids={"option": "startingOffsets"},
            hint="give earliest, offsets, or a time",
        )
    start = start_of(options, starting, facts, at_time)
    return ranges_between(start, _resolve("endingOffsets", options.ending, facts, at_time))


def _resolve(option: str, bound: Bound, facts: TopicFacts, at_time: _AtTime) -> Offsets:
    if isinstance(bound, str):
        return facts.begins if bound == "earliest" else facts.ends
    unnamed = facts.begins if option == "startingOffsets" else facts.ends
    if not isinstance(bound, Times):
        at = at_given(bound, facts.begins, facts.ends, "begin query", f"option {option}")
        named = {partition_name(topic, p) for topic, of_each in bound.items() for p in of_each}
        return {
            name: offset if partition_name(*split_name(name)) in named else unnamed[name]
            for name, offset in at.items()
        }
    times = _timed(bound, facts)
    found = {time: at_time(time, facts) for time in set(times.values())}
    return {name: found[times[name]][name] if name in times else unnamed[name] for name in unnamed}


def _timed(bound: Times, facts: TopicFacts) -> dict[str, int]:
    """Return the time of each partition that has one."""
    if bound.of_all is not None:
        return dict.fromkeys(facts.ends, bound.of_all)
    each = {name: split_name(name) for name in facts.ends}
    return {
        name: bound.of_each[topic][partition]
        for name, (topic, partition) in each.items()
        if partition in bound.of_each.get(topic, {})
    }
