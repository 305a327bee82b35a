"""Offset maps of a journal stream: which records a batch takes, and which writers may be left out.

An offset map is ``{writer: end}``. Every restart of a receiver brings a new writer, so finished
ones must leave the map again, or it would grow for ever. The rule that makes this safe: **a writer
that is absent from a map, while a later epoch of its receiver is present, is finished**. It holds
because a map has every writer from its first sight on (epochs have no gaps, see
JournalStream.writers), and lets go of one only when it is sealed, so its end is final, and taken
in full. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import MissingBlockError
from penstock.journal.layout import WriterId, parse_writer
from penstock.model import OffsetRange, Offsets

__all__ = ["WriterEnd", "advance", "begin_at", "is_finished", "ranges_between"]


@dataclass(frozen=True, slots=True)
class WriterEnd:
    """How far a writer's durable records go, and whether that is final."""

    end_offset: int
    sealed: bool


def is_finished(writer: WriterId, committed: Offsets) -> bool:
    """Whether ``committed`` says, by leaving the writer out, that all its records are behind it."""
    return str(writer) not in committed and writer.epoch < _newest_epochs(committed).get(
        writer.receiver, 0
    )


def advance(start: Offsets, ends: Mapping[WriterId, WriterEnd]) -> dict[str, int]:
    """Return the offset map that follows ``start`` when all of ``ends`` is taken.

    Writers that ``start`` took to their final end are left out once a later epoch is in the map.
    ``ends`` has every writer that ``start`` does not know to be finished, also those without
    records. Who takes less than all of it must keep every writer in the map, at its start.

    Raises:
        MissingBlockError: the journal ends before ``start``, or a writer of ``start`` is not in it.
    """
    live = {w: end for w, end in ends.items() if not is_finished(w, start)}
    _check_not_behind(start, live)
    held = _without_exhausted({w: start[str(w)] for w in live if str(w) in start}, live)
    return {str(writer): live[writer].end_offset for writer in held}


def begin_at(starts: Mapping[WriterId, int], ends: Mapping[WriterId, WriterEnd]) -> dict[str, int]:
    """Return the offset map of somebody who begins at ``starts``, in the middle of the writers.

    A writer that is not in ``starts`` begins at 0. Sealed ones with nothing from there on are left
    out, where the map tells that they are finished.
    """
    return {str(writer): starts.get(writer, 0) for writer in _without_exhausted(starts, ends)}


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the non-empty ranges that lead from one offset map to the next.

    Raises:
        ConfigError: ``end`` is before ``start``.
    """
    ranges = (OffsetRange(w, start.get(w, 0), to) for w, to in sorted(end.items()))
    return [r for r in ranges if r.count]


def _check_not_behind(start: Offsets, ends: Mapping[WriterId, WriterEnd]) -> None:
    held = {str(writer): end.end_offset for writer, end in ends.items()}
    for writer, offset in start.items():
        if offset > held.get(writer, -1):
            raise MissingBlockError(
                f"offset {offset} was reached, and the journal holds only "
                f"{held.get(writer, 'other writers')}",
                operation="plan range",
                ids={"writer": writer, "start": held.get(writer, 0), "end": offset},
                hint="restore the journal, which is older than the checkpoint location, or not the "
                "one that belongs to it",
            )


def _without_exhausted(
    reached: Mapping[WriterId, int], ends: Mapping[WriterId, WriterEnd]
) -> list[WriterId]:
    """Return the writers of ``ends``, sorted, but for those that a map need not have any more."""
    newest = _newest_epochs(str(writer) for writer in ends)

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
