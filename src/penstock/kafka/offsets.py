"""Offsets of topics, and the ranges between them. Pure.

    {"clicks": {"0": 246189, "1": 246201}, "clicks@kGl1ZW50LWNsaWNrcy0wMQ": {}}

Topic -> partition -> end offset, exclusive: the form that Spark's Kafka source writes. Within
penstock an offset map is flat, ``{"clicks/0": 246189}``: a topic's name has no slash.

A topic that was deleted and created again has other records at the same offsets, and another id. So
the id stands beside the offsets, in a key without partitions, which Spark's source skips. Offsets
without an id (Spark's source and old brokers have none) are those of the topic as it is now.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from penstock.errors import ConfigError, RecoveryMismatchError
from penstock.model import Offsets

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
TopicOffsets = dict[str, dict[str, int]]
"""``{topic: {partition: end offset}}``, as Spark's Kafka source writes it."""
TopicIds = Mapping[str, str | None]
"""By topic; None where the brokers have none (before Kafka 2.8)."""
_EARLIEST, _LATEST = -2, -1
_MOST_PER_TASK = 250_000
"""A task of Python workers costs about as much as reading 100,000 records."""
_TOPIC = re.compile(r"[^@]+")
_TOPIC_WITH_ID = re.compile(r"([^@]+)@([A-Za-z0-9+/_-]{22})")
_PARTITION = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True, order=True)
class KafkaRange:
    """Records ``[start_offset, end_offset)`` of one partition of a topic.

    Not every offset has a record: compaction removes some, and transactions use some up.
    What is lost of a range stays within it, so that it is divided as it was planned.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    lost: tuple[tuple[int, int], ...] = ()
    """Offsets ``[start, end)`` within it that the loss log has, ascending: they are not read."""

    @property
    def name(self) -> str:
        """The key of the partition in a flat offset map."""
        return partition_name(self.topic, self.partition)

    @property
    def count(self) -> int:
        """The most records that can be read of the range."""
        return self.span - sum(end - start for start, end in self.lost)

    @property
    def span(self) -> int:
        """How many offsets it has, with those that are lost."""
        return self.end_offset - self.start_offset

    def split(self, most: int, cell: int = 1) -> list[KafkaRange]:
        """Return ranges of about equal length, of ``most`` offsets or few more, that make up this.

        They begin and end with cells of so many offsets, counted from 0, where this does not.
        """
        parts = -(-self.span // most)
        start, span = self.start_offset, self.span
        inner = (start + span * i // parts for i in range(1, parts))
        cuts = [start, *(max(start, cut - cut % cell) for cut in inner), self.end_offset]
        return [self._part(s, e) for s, e in pairwise(cuts) if s < e]

    def held(self) -> list[KafkaRange]:
        """Return the ranges that are left of it without what is lost, in order."""
        gaps = [(self.start_offset, self.start_offset), *self.lost, (self.end_offset,) * 2]
        return [self._part(s, e) for (_, s), (e, _) in pairwise(gaps) if s < e]

    def _part(self, start: int, end: int) -> KafkaRange:
        cut = ((max(s, start), min(e, end)) for s, e in self.lost)
        lost = tuple((s, e) for s, e in cut if s < e)
        return replace(self, start_offset=start, end_offset=end, lost=lost)


def partition_name(topic: str, partition: int) -> str:
    """Return the key of a partition in a flat offset map."""
    return f"{topic}/{partition}"


def split_name(name: str) -> tuple[str, int]:
    """Return topic and partition of a key in a flat offset map."""
    topic, _, partition = name.rpartition("/")
    return topic, int(partition)


def to_json(offsets: Offsets, ids: TopicIds = MappingProxyType({})) -> TopicOffsets:
    """Return a flat offset map, and the ids of its topics, in the form of offset logs."""
    topics: TopicOffsets = {}
    for name in sorted(offsets, key=split_name):
        topic, _, partition = name.rpartition("/")
        topics.setdefault(topic, {})[partition] = offsets[name]
    return topics | {f"{topic}@{ids[topic]}": {} for topic in topics if ids.get(topic)}


def from_json(value: Any) -> dict[str, int]:
    """Return the flat offset map of a value in an offset log, None being no offsets.

    Raises:
        RecoveryMismatchError: these are not offsets of topics.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(_is_topic(*item) for item in value.items()):
        raise RecoveryMismatchError(
            f"the checkpoint location holds {str(value)[:200]!r} in the place of the offsets of "
            "Kafka topics",
            operation="recover",
            hint="keep the program's inputs in the same order and under the same names (name=)",
        )
    return {
        partition_name(key, int(p)): end for key, ends in value.items() for p, end in ends.items()
    }


def ids_in(value: Any) -> dict[str, str]:
    """Return the ids of topics that a value in an offset log has, by topic."""
    found = (_TOPIC_WITH_ID.fullmatch(key) for key in value or ())
    return {match[1]: match[2] for match in found if match}


def at_given(
    given: Mapping[str, Mapping[int, int]],
    begins: Offsets,
    ends: Offsets,
    operation: str,
    option: str = "starting=",
) -> dict[str, int]:
    """Return the offsets that are given, by topic and partition; of other partitions ``begins``.

    As in Kafka and Spark, -2 is where a partition begins, and -1 where it ends. ``option`` is where
    they are given, for messages.

    Raises:
        ConfigError: a partition does not exist, or does not hold what comes from its offset on.
    """
    wanted = {
        partition_name(topic, partition): offset
        for topic, offsets in given.items()
        for partition, offset in offsets.items()
    }
    if unknown := sorted(wanted.keys() - begins.keys()):
        raise ConfigError(
            f"{option} names {', '.join(unknown)}, which does not exist",
            operation=operation,
            hint=f"the partitions are {', '.join(sorted(begins))}",
        )
    found = dict(begins)
    for name, offset in wanted.items():
        begin, end = begins[name], ends[name]
        found[name] = {_EARLIEST: begin, _LATEST: end}.get(offset, offset)
        if not begin <= found[name] <= end:
            raise ConfigError(
                f"{option} gives offset {offset} of {name}, which holds [{begin}, {end})",
                operation=operation,
                hint=f"give {begin} to {end}, -2 for where it begins, or -1 for where it ends",
            )
    return found


def ranges_between(start: Offsets, end: Offsets) -> list[KafkaRange]:
    """Return the ranges that hold records, in order.

    A partition that ``start`` lacks has no range: it is recorded before it is read.
    """
    found = []
    for name, offset in end.items():
        if start.get(name, offset) < offset:
            found.append(KafkaRange(*split_name(name), start[name], offset))
    return sorted(found)


def split_ranges(
    ranges: Sequence[KafkaRange], *, cell: int = 1, least_tasks: int = 1
) -> list[KafkaRange]:
    """Return what each task reads: a partition that lags is shared by several.

    By their offsets alone, not by slots or by what is lost: a batch that runs again, on other
    executors, or without records that were deleted meanwhile, has the same partitions, which an
    exactly-once sink may have written in part.

    Args:
        ranges: of the batch.
        cell: see ``KafkaRange.split``.
        least_tasks: at least so many tasks, if there are as many records.
    """
    span = sum(part.span for part in ranges)
    most = min(_MOST_PER_TASK, max(1, span // least_tasks))
    return [part for whole in ranges for part in whole.split(most, cell)]


def _is_topic(key: Any, ends: Any) -> bool:
    if not isinstance(ends, Mapping):
        return False
    if not _TOPIC.fullmatch(str(key)):
        return not ends and bool(_TOPIC_WITH_ID.fullmatch(str(key)))
    return all(
        isinstance(p, str) and _PARTITION.fullmatch(p) and type(end) is int and end >= 0
        for p, end in ends.items()
    )
