"""Offset maps of a journal stream: the records of a batch, and writers that may be omitted.

An offset map is ``{writer: end}``. Every restart of a receiver creates a new writer, so finished
ones must leave the map, or it would grow for ever. The rule that makes this safe: **a writer that
is absent from a map, while a later epoch of its receiver is present, is finished**. It is valid
because a map contains every writer as soon as it is listed (epochs have no gaps, see
JournalStream.writers), and drops a writer only when it is sealed, so that its end is final, and
completely processed. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import MissingBlockError
from penstock.journal.layout import WriterId, parse_writer
from penstock.model import OffsetRange, Offsets


@dataclass(frozen=True, slots=True)
class WriterEnd:
    """The end of a writer's durable records, and whether it is final."""

    end_offset: int
    sealed: bool


def is_finished(writer: WriterId, committed: Offsets) -> bool:
    """Whether ``committed`` omits the writer because all of its records are processed."""
    return str(writer) not in committed and writer.epoch < _newest_epochs(committed).get(
        writer.receiver, 0
    )


def advance(start: Offsets, ends: Mapping[WriterId, WriterEnd]) -> dict[str, int]:
    """Return the offset map after ``start`` if everything up to ``ends`` is taken.

    Writers that ``start`` has taken to their final end are omitted once a later epoch is in the
    map. ``ends`` has every writer that is not finished according to ``start``, also those without
    records. A caller that takes less must keep every writer in the map, at its start.

    Raises:
        MissingBlockError: the journal ends before ``start``, or a writer of ``start`` is not in it.
    """
    live = {w: end for w, end in ends.items() if not is_finished(w, start)}
    _check_not_behind(start, live)
    held = _without_exhausted({w: start[str(w)] for w in live if str(w) in start}, live)
    return {str(writer): live[writer].end_offset for writer in held}


def begin_at(starts: Mapping[WriterId, int], ends: Mapping[WriterId, WriterEnd]) -> dict[str, int]:
    """Return the offset map of a reader that begins at ``starts``, in the middle of the writers.

    A writer that is not in ``starts`` begins at 0. Sealed writers without further records are
    omitted if the map shows that they are finished.
    """
    return {str(writer): starts.get(writer, 0) for writer in _without_exhausted(starts, ends)}


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the non-empty ranges that lead from one offset map to the next.

    Raises:
        ConfigError: ``end`` is before ``start``.
    """
    ranges = (OffsetRange(w, start.get(w, 0), to) for w, to in sorted(end.items()))
    return [r for r in ranges if r.count]


def precedes(offsets: Offsets, other: Offsets) -> bool:
    """Whether ``offsets`` lack a record of any writer that is before ``other``."""
    return any(_reached(offsets, w) < _reached(other, w) for w in offsets.keys() | other.keys())


def _reached(offsets: Offsets, name: str) -> float:
    writer = parse_writer(name)
    if writer is not None and is_finished(writer, offsets):
        return math.inf
    return offsets.get(name, 0)


def _check_not_behind(start: Offsets, ends: Mapping[WriterId, WriterEnd]) -> None:
    held = {str(writer): end.end_offset for writer, end in ends.items()}
    for writer, offset in start.items():
        if offset > held.get(writer, -1):
            raise MissingBlockError(
                f"offset {offset} was processed, and the journal holds only "
                f"{held.get(writer, 'other writers')}",
                operation="plan range",
                ids={"writer": writer, "start": held.get(writer, 0), "end": offset},
                hint="restore the journal: it is older than the checkpoint location, or not the "
                "one that belongs to it",
            )


def _without_exhausted(
    reached: Mapping[WriterId, int], ends: Mapping[WriterId, WriterEnd]
) -> list[WriterId]:
    """Return the writers of ``ends``, sorted, without those that a map may omit."""
    newest = {writer.receiver: writer.epoch for writer in sorted(ends)}

    def is_exhausted(writer: WriterId) -> bool:
        end = ends[writer]
        return end.sealed and reached.get(writer) == end.end_offset

    return [
        writer
        for writer in sorted(ends)
        if not (is_exhausted(writer) and writer.epoch < newest[writer.receiver])
    ]


def _newest_epochs(writers: Iterable[str]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for name in writers:
        writer = parse_writer(name)
        if writer is not None:
            newest[writer.receiver] = max(writer.epoch, newest.get(writer.receiver, 0))
    return newest
