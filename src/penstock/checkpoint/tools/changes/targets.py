"""The points that a query can go back to: by time, by number, by offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.checkpoint.log_files import SourceLine
from penstock.checkpoint.log_format import dump_json
from penstock.checkpoint.tools.changes.position import Position, misfit, refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.inspection import iso_time
from penstock.checkpoint.tools.offsets import log_offset, number_of, offset_parts, streams_of


def batch_at(checkpoint: Checkpoint, time_ms: int) -> int:
    """Return the newest batch that is done and was planned at that time or before.

    Raises:
        ConfigError: all that are kept were planned later.
    """
    done = checkpoint.batches(checkpoint.done)
    times = {batch.batch_id: batch.time_ms for batch in done if batch.time_ms is not None}
    before = [batch_id for batch_id, planned_ms in times.items() if planned_ms <= time_ms]
    if not before:
        oldest = iso_time(min(times.values(), default=None)) or "unknown"
        raise misfit(
            checkpoint.url,
            f"no batch that is done and kept was planned by {iso_time(time_ms) or time_ms}",
            f"the oldest was planned at {oldest}",
        )
    return max(before)


def batch_before(checkpoint: Checkpoint, count: int, *, is_own: bool) -> int:
    """Return the batch that is so many before where the query stands.

    Where a query of Spark ends at the same offsets as before, it stands at that point again.

    Raises:
        ConfigError: it is not kept.
    """
    done = list(checkpoint.done)
    line = done if is_own else _line(checkpoint, done)
    if not 0 < count < len(line):
        raise misfit(
            checkpoint.url,
            f"there is no batch {count} before where the query stands",
            f"give 1 to {len(line) - 1}: the end of batch {line[0]} is the oldest that is kept",
        )
    return line[-1 - count]


def _line(checkpoint: Checkpoint, done: Sequence[int]) -> list[int]:
    """Return the batches that lead to where the query stands, of each point the last."""
    line: dict[str, int] = {}
    for batch in checkpoint.batches(done):
        if batch.offsets is None:  # it cannot be read, and is not a point to go back to
            continue
        end = dump_json(batch.end_offsets)
        while end in line:
            line.popitem()
        line[end] = batch.batch_id
    return list(line.values())


def last_appended(checkpoint: Checkpoint, batch_id: int) -> int:
    """Return the last of the batches that a rewind appended together; else the batch itself.

    Only the last one has its state: those before it fill up the ids, and the files of their
    versions are parts of the copy. They have one time and one end, as no two batches that Spark
    planned.

    Raises:
        CheckpointError: the entry after them is lost, so it is not known which is the last.
    """
    later = checkpoint.batches(each for each in checkpoint.planned if each >= batch_id)
    points = {each.batch_id: (each.time_ms, each.end_offsets) for each in later if each.offsets}
    same = [each for each, point in points.items() if point == points.get(batch_id)]
    if len(same) > 1 and same[-1] + 1 not in points and same[-1] != checkpoint.planned[-1]:
        raise refusal(
            checkpoint,
            f"a rewind appended batch {batch_id}, and offsets/{same[-1] + 1} cannot be read: which"
            " was the last of that rewind is not known",
            "choose another batch",
        )
    return same[-1] if same else batch_id


def check_offsets(
    checkpoint: Checkpoint, position: Position, wanted: Mapping[str, Any]
) -> tuple[SourceLine, ...]:
    """Return the sources' lines with the wanted offsets in place of the newest batch's.

    Raises:
        ConfigError: a source is not the query's, or an offset is of another form than its own, or
            after it, or below 0.
    """
    ends = position.newest.end_offsets
    if unknown := sorted(set(wanted) - set(ends)):
        raise misfit(
            checkpoint.url,
            f"the query has no source {', '.join(unknown)}",
            f"its sources are {', '.join(ends)}",
        )
    for source, offset in wanted.items():
        _check_offset(checkpoint, source, offset, ends[source])
    return tuple(
        SourceLine(line.name, dump_json(wanted[source])) if source in wanted else line
        for source, line in zip(ends, position.offsets.sources, strict=True)
    )


def _check_offset(checkpoint: Checkpoint, source: str, offset: Any, end: Any) -> None:
    new, old = _numbers(offset), _numbers(end)
    if old is None:
        raise misfit(
            checkpoint.url,
            f"the offsets of source {source} have a form of its own: which it takes is not known",
            "go back to the end of a batch (--to-batch)",
        )
    if new is None or new.keys() != old.keys():
        raise misfit(
            checkpoint.url,
            f"the offset of source {source} has another form than its newest, {dump_json(end)}",
            "give all its partitions, as `inspect --batch N --json` shows them under offsets",
        )
    for part, value in new.items():
        place = f"source {source} {part}".rstrip()
        if value > old[part]:
            raise misfit(
                checkpoint.url,
                f"{place}: {value} is after {old[part]}, where the query stands",
                f"a rewind goes back: give 0 to {old[part]}; what lies in between would never be"
                " read",
            )
        if value < 0:
            raise misfit(
                checkpoint.url, f"{place}: {value} is not an offset", f"give 0 to {old[part]}"
            )


def _numbers(offset: object) -> Mapping[str, int] | None:
    """Return the parts of an offset; None for one of no form that Spark's sources have."""
    if (entry := log_offset(offset)) is not None:
        return {"logOffset": entry}
    if (number := number_of(offset)) is not None:
        return {"": number}
    return offset_parts(offset) if streams_of(offset) is not None else None
