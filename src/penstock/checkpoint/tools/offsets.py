"""The parts of a source's offset, whatever source it is of. Pure: parsed JSON in, numbers out.

{"clicks":{"0":120,"1":30}}     Kafka and journals: a number for each partition of a stream
{"logOffset":12}                a file source: the entry of its own log (12 alone is read as well)
7                               rate, socket and others: a number
anything else                   one part, which is not a number
"""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "entry_of_log",
    "is_of_journal",
    "is_of_topics",
    "log_offset",
    "lost_parts",
    "moved",
    "number_of",
    "offset_parts",
    "streams_of",
    "topic_parts",
]

_TOPIC = re.compile(r"[^@]+(@[0-9]{1,9})?")
"""With how often it was created anew before."""
_PARTITION = re.compile(r"[0-9]{1,10}")


def number_of(value: object) -> int | None:
    """Return a number in Spark's form, 64 bits; None for any other value."""
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def log_offset(offset: object) -> int | None:
    """Return which entry of its log a file source has come to; None for any other source."""
    if isinstance(offset, dict) and tuple(offset) == ("logOffset",):
        return number_of(offset["logOffset"])
    return None


def entry_of_log(offset: object) -> int | None:
    """Return the entry that a file source takes from its offset; None for what it refuses."""
    return number_of(offset.get("logOffset") if isinstance(offset, dict) else offset)


def streams_of(offset: object) -> dict[str, dict[str, int]] | None:
    """Return the offset of each partition of each stream or topic; None for any other source."""
    if not isinstance(offset, dict) or not offset:
        return None
    for partitions in offset.values():
        if not isinstance(partitions, dict):
            return None
        if any(number_of(value) is None for value in partitions.values()):
            return None
    return offset


def is_of_topics(offset: object) -> bool:
    """Whether an offset is one of Kafka topics: partitions are numbers, writers of journals not."""
    streams = streams_of(offset)
    if streams is None or not all(map(_TOPIC.fullmatch, streams)):
        return False
    return all(_PARTITION.fullmatch(each) for ends in streams.values() for each in ends)


def is_of_journal(offset: object) -> bool:
    """Whether an offset is one of a journal: its partitions are writers, which have names."""
    streams = streams_of(offset)
    return streams is not None and not is_of_topics(offset) and any(streams.values())


def topic_parts(offset: object) -> dict[str, int]:
    """Return the offset of each partition of topics, as ``topic/partition``.

    An offset that does not tell topics apart by how often they were created anew.
    """
    return {
        f"{topic.partition('@')[0]}/{partition}": value
        for topic, partitions in (streams_of(offset) or {}).items()
        for partition, value in partitions.items()
    }


def offset_parts(offset: object) -> dict[str, Any]:
    """Return an offset by partition, as ``stream partition``; others as one part without a name."""
    streams = streams_of(offset)
    if streams is None:
        return {} if offset is None else {"": offset}
    return {
        f"{stream} {partition}": value
        for stream, partitions in streams.items()
        for partition, value in partitions.items()
    }


def moved(start: object, end: object) -> int | None:
    """Return how far it is from one offset to another; None when that is not a number.

    A partition that begins counts from 0. One that is not in the end does not count: a journal's
    writer that was closed and read to its end.
    """
    if (parts := streams_of(end)) is not None and (before := streams_of(start)) is not None:
        return sum(
            value - before.get(stream, {}).get(partition, 0)
            for stream, partitions in parts.items()
            for partition, value in partitions.items()
        )
    first, last = _number(start), _number(end)
    return None if first is None or last is None else last - first


def lost_parts(start: object, end: object) -> bool:
    """Whether a partition of the start is not in the end, of which ``moved`` tells too little."""
    return (
        streams_of(start) is not None and not offset_parts(start).keys() <= offset_parts(end).keys()
    )


def _number(offset: object) -> int | None:
    return number_of(offset) if (log := log_offset(offset)) is None else log
