"""Offsets of sources in a few words. Pure: JSON of any source in, text out."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["describe_offset", "moved", "partition_rows"]

_LONGEST = 40


def describe_offset(offset: Any) -> str:
    """Return an offset in at most a few words; ``-`` for a source that takes no part."""
    if offset is None:
        return "-"
    if _is_count(offset):
        return f"{offset:,}"
    if (log := _log_offset(offset)) is not None:
        return f"log {log:,}"
    streams = _streams(offset)
    if streams is not None:
        return ", ".join(map(_stream_text, streams.items()))
    text = offset if isinstance(offset, str) else json.dumps(offset, separators=(",", ":"))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def moved(start: Any, end: Any) -> int | None:
    """Return how far a source went from one offset to the next; None when that is no number."""
    first, last = _total(start), _total(end)
    return None if first is None or last is None else last - first


def partition_rows(start: Any, end: Any) -> list[tuple[str, str, str, str]]:
    """Return a row for each partition of a source: its name, start, end and how far it went."""
    before, after = _streams(start) or {}, _streams(end)
    if after is None:
        return [("", describe_offset(start), describe_offset(end), _signed(moved(start, end)))]
    rows = []
    for stream, partitions in after.items():
        starts = before.get(stream, {})
        for partition, last in partitions.items():
            first = starts.get(partition)
            row = (describe_offset(first), describe_offset(last), _signed(moved(first or 0, last)))
            rows.append((f"{stream} {partition}", *row))
    return rows


def _signed(number: int | None) -> str:
    return "" if number is None else f"{number:+,}"


def _is_count(value: Any) -> bool:
    return type(value) is int


def _log_offset(offset: Any) -> int | None:
    """Return which entry of its own log a file source has come to; None for any other source."""
    if isinstance(offset, dict) and tuple(offset) == ("logOffset",):
        return offset["logOffset"] if _is_count(offset["logOffset"]) else None
    return None


def _streams(offset: Any) -> dict[str, dict[str, int]] | None:
    """Return ``{topic: {partition: offset}}`` of Kafka and of journals; None for any other."""
    if not isinstance(offset, dict) or not offset:
        return None
    for partitions in offset.values():
        if not isinstance(partitions, dict) or not all(map(_is_count, partitions.values())):
            return None
    return offset


def _stream_text(stream: tuple[str, dict[str, int]]) -> str:
    name, partitions = stream
    text = f"{name} {sum(partitions.values()):,}"
    return text if len(partitions) == 1 else f"{text} in {len(partitions)} partitions"


def _total(offset: Any) -> int | None:
    if _is_count(offset):
        return int(offset)
    if (log := _log_offset(offset)) is not None:
        return log
    streams = _streams(offset)
    if streams is None:
        return None
    return sum(sum(partitions.values()) for partitions in streams.values())
