"""Offsets of sources in a few words. Pure: JSON of any source in, text out.

What is too long to be shown whole is shown by what differs from the offset beside it, so that two
batches do not look the same that are not.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from penstock.checkpoint.tools.offsets import (
    log_offset,
    lost_parts,
    moved,
    number_of,
    offset_parts,
    streams_of,
)

_SHORT = 40
"""JSON with no more characters is shown as it is."""
_MOST_FIELDS = 4
_WHOLE, _CONTEXT, _LONGEST = 100, 20, 300
"""Longer text is shown from where it differs, with so many characters before it, up to so many."""


def describe_offset(offset: Any, other: Any = None) -> str:
    """Return an offset in a few words: of a long one, what is not as in ``other``.

    ``-`` stands for a source that takes no part.
    """
    if offset is None:
        return "-"
    if (number := number_of(offset)) is not None:
        return f"{number:,}"
    if (log := log_offset(offset)) is not None:
        return f"log {log:,}"
    if (streams := streams_of(offset)) is not None:
        return ", ".join(map(_stream_text, streams.items()))
    text = _json(offset)
    if len(text) <= _SHORT:
        return text
    return _changed_fields(offset_parts(offset), offset_parts(other))


def describe_move(start: Any, end: Any) -> str:
    """Return how far it is from one offset to another, with its sign; empty where unknown."""
    step = moved(start, end)
    if step is None:
        return ""
    return f"{step:+,} or more" if lost_parts(start, end) else f"{step:+,}"


def part_rows(start: Any, end: Any) -> list[tuple[str, str, str, str]]:
    """Return a row for each part of an offset: its name, start, end and how far it went."""
    starts, is_by_partition = offset_parts(start), streams_of(end) is not None
    return [
        _part_row(part, starts.get(part), last, is_by_partition=is_by_partition)
        for part, last in offset_parts(end).items()
    ]


def _part_row(
    part: str, start: Any, end: Any, *, is_by_partition: bool
) -> tuple[str, str, str, str]:
    texts = (part, describe_offset(start, end), describe_offset(end, start))
    if not is_by_partition:
        return (*texts, describe_move(start, end))
    # A partition that was not there before, unlike a source, begins with 0.
    first = 0 if start is None else start
    return (*texts, describe_move({"": {"": first}}, {"": {"": end}}))


def _stream_text(stream: tuple[str, dict[str, int]]) -> str:
    name, partitions = stream
    marks = Counter(value for value in partitions.values() if value < 0)
    known = [value for value in partitions.values() if value >= 0]
    sums = [(sum(known), len(known))] if known or not marks else []
    sums += sorted(marks.items())
    if len(partitions) == 1:
        return f"{name} {sums[0][0]:,}"
    texts = [f"{total:,} in {count}" for total, count in sums]
    return f"{name} {texts[0]} partitions{''.join(f' and {text}' for text in texts[1:])}"


def _changed_fields(parts: dict[str, Any], before: dict[str, Any]) -> str:
    """Return the first fields that are not as before; of one that is the same, its first ones."""
    changed = {name: value for name, value in parts.items() if before.get(name, ...) != value}
    shown = list((changed or parts).items())
    texts = [
        f"{name} {_from_difference(_json(value), _json(before.get(name, '')))}".lstrip()
        for name, value in shown[:_MOST_FIELDS]
    ]
    more = len(shown) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _from_difference(text: str, other: str) -> str:
    """Return text as it is if it is short, else from where it begins to differ from another one."""
    if len(text) <= _WHOLE:
        return text
    pairs = enumerate(zip(text, other, strict=False))
    same = next((at for at, (one, two) in pairs if one != two), min(len(text), len(other)))
    first = max(0, same - _CONTEXT) if text != other else 0
    end = first + _LONGEST
    return f"{'...' if first else ''}{text[first:end]}{'...' if end < len(text) else ''}"
