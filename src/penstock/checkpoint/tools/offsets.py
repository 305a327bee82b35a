"""The parts of a source's offset, whatever source it is of. Pure: parsed JSON in, numbers out.

{"clicks":{"0":120,"1":30}}     Kafka and journals: a number for each partition of a stream
{"in":{"after":1,"until":2,     files of a penstock program: those of the batch that ends there, by
  "files":{"file:/in":[["a",2,9]]}}}        folder, with time and length
{"logOffset":12}                a file source: the entry of its own log (12 alone is read as well)
7                               rate, socket and others: a number
{"index":3,"shard":{"at":"7"}}  of other sources (Delta, Kinesis): each of its fields is a part
anything else                   one part, which is not a number

A negative offset of a partition is a mark, not a number: where its source begins, or where it ends
(-1 and -2 of Kafka, -1 of Event Hubs).
"""

from __future__ import annotations

import re
from typing import Any

_TOPIC = re.compile(r"[^@]+(@[\w+/-]{22})?")
"""With its id, of a key without partitions."""
_PARTITION = re.compile(r"[0-9]{1,10}")

_BEGUN: object = {"(first batch)": {}}
"""The offset of a query over topics that has begun, and found none yet."""


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


def files_of(offset: object) -> list[tuple[str, int, int]]:
    """Return the files of a batch of a penstock program that ends there: URL, time in ms, length.

    There are none for any other source.
    """
    inputs = offset.values() if isinstance(offset, dict) else ()
    try:
        return [
            (f"{folder}/{name}", int(modified_ms), int(length))
            for each in inputs
            for folder, files in each["files"].items()
            for name, modified_ms, length in files
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


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


def inputs_of(place: str, offset: object) -> list[str]:
    """Return how inputs of a query are called: by their streams; those over topics by their place.

    Topics come and go while a query's source stays. Empty for a source of another kind.

    Args:
        place: the source's place in the query, from 0.
        offset: one of its offsets.
    """
    streams = streams_of(offset)
    if streams is None:
        return []
    has_begun = offset == _BEGUN or (is_of_topics(offset) and any(streams.values()))
    return [place] if has_begun else sorted(streams)


def topic_parts(offset: object) -> dict[str, int]:
    """Return the offset of each partition of topics, as ``topic/partition``."""
    return {
        f"{topic}/{partition}": value
        for topic, partitions in (streams_of(offset) or {}).items()
        for partition, value in partitions.items()
    }


def offset_parts(offset: object) -> dict[str, Any]:
    """Return an offset by partition, as ``stream partition``, or by the fields of its JSON.

    A number or text, and the entry of a file source's log, is one part without a name.
    """
    streams = streams_of(offset)
    if streams is None:
        return {} if offset is None else _fields_of(offset)
    return {
        f"{stream} {partition}": value
        for stream, partitions in streams.items()
        for partition, value in partitions.items()
    }


def _fields_of(offset: object) -> dict[str, Any]:
    if log_offset(offset) is not None:
        return {"": offset}
    found: list[tuple[str, Any]] = []
    waiting = [("", offset)]
    while waiting:  # not by recursion: JSON may be nested deeply
        name, value = waiting.pop()
        inner: list[tuple[Any, Any]] = []
        if isinstance(value, dict):
            inner = list(value.items())
        elif isinstance(value, list):
            inner = list(enumerate(value))
        if inner:
            waiting += [(f"{name} {key}".lstrip(), each) for key, each in reversed(inner)]
        else:
            found.append((name, value))
    parts = dict(found)
    return parts if len(parts) == len(found) else {"": offset}  # names with spaces may collide


def moved(start: object, end: object) -> int | None:
    """Return how far it is from one offset to another; None when that is not a number.

    A partition that begins counts from 0. One that is not in the end does not count: a journal's
    writer that was closed and read to its end. With a mark on either side it is not known.
    """
    if (parts := streams_of(end)) is not None and (before := streams_of(start)) is not None:
        steps = [
            (before.get(stream, {}).get(partition, 0), value)
            for stream, partitions in parts.items()
            for partition, value in partitions.items()
        ]
        is_known = all(first >= 0 and last >= 0 for first, last in steps)
        return sum(last - first for first, last in steps) if is_known else None
    first, last = _number(start), _number(end)
    return None if first is None or last is None else last - first


def lost_parts(start: object, end: object) -> bool:
    """Whether a partition of the start is not in the end, of which ``moved`` tells too little."""
    return (
        streams_of(start) is not None and not offset_parts(start).keys() <= offset_parts(end).keys()
    )


def _number(offset: object) -> int | None:
    return number_of(offset) if (log := log_offset(offset)) is None else log
