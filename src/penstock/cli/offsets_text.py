"""Offsets of sources in a few words. Pure: JSON of any source in, text out."""

from __future__ import annotations

import json
from typing import Any

from penstock.checkpoint.tools.offsets import (
    log_offset,
    lost_parts,
    moved,
    number_of,
    offset_parts,
    streams_of,
)

__all__ = ["describe_move", "describe_offset", "part_rows"]

_LONGEST = 40


def describe_offset(offset: Any) -> str:
    """Return an offset in at most a few words; ``-`` for a source that takes no part."""
    if offset is None:
        return "-"
    if (number := number_of(offset)) is not None:
        return f"{number:,}"
    if (log := log_offset(offset)) is not None:
        return f"log {log:,}"
    if (streams := streams_of(offset)) is not None:
        return ", ".join(map(_stream_text, streams.items()))
    text = offset if isinstance(offset, str) else json.dumps(offset, separators=(",", ":"))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def describe_move(start: Any, end: Any) -> str:
    """Return how far it is from one offset to another, with its sign; empty where unknown."""
    step = moved(start, end)
    if step is None:
        return ""
    return f"{step:+,} or more" if lost_parts(start, end) else f"{step:+,}"


def part_rows(start: Any, end: Any) -> list[tuple[str, str, str, str]]:
    """Return a row for each partition of a source: its name, start, end and how far it went."""
    starts = offset_parts(start)
    return [_part_row(part, starts.get(part), last) for part, last in offset_parts(end).items()]


def _part_row(part: str, start: Any, end: Any) -> tuple[str, str, str, str]:
    # A partition that was not there before, unlike a source, begins with 0.
    first = 0 if part and start is None else start
    return (part, describe_offset(start), describe_offset(end), describe_move(first, end))


def _stream_text(stream: tuple[str, dict[str, int]]) -> str:
    name, partitions = stream
    text = f"{name} {sum(partitions.values()):,}"
    return text if len(partitions) == 1 else f"{text} in {len(partitions)} partitions"
