"""The points that a query can go back to: by time, by number, by offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.checkpoint.log_files import SourceLine
from penstock.checkpoint.log_format import dump_json
from penstock.checkpoint.tools.changes.position import Position
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.inspection import iso_time
from penstock.checkpoint.tools.offsets import offset_parts
from penstock.errors import ConfigError

__all__ = ["batch_at", "batch_before", "check_offsets"]


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
        raise _no_point(
            checkpoint,
            f"no batch that is done and kept was planned by {iso_time(time_ms) or time_ms}",
            f"the oldest was planned at {oldest}",
        )
    return max(before)


def batch_before(checkpoint: Checkpoint, count: int, *, is_own: bool) -> int:
    """Return the batch that is so many before where the query stands.

    Batches of Spark that end at the same offsets count once: those that a rewind appended.

    Raises:
        ConfigError: it is not kept.
    """
    done = list(checkpoint.done)
    if not is_own:
        ends = {b.batch_id: dump_json(b.end_offsets) for b in checkpoint.batches(done)}
        first: dict[str, int] = {}
        for batch_id in done:
            first.setdefault(ends[batch_id], batch_id)
        stands = first[ends[done[-1]]]
        done = [batch_id for batch_id in first.values() if batch_id <= stands]
    if not 0 < count < len(done):
        raise _no_point(
            checkpoint,
            f"there is no batch {count} before where the query stands",
            f"give 1 to {len(done) - 1}: the end of batch {done[0]} is the oldest that is kept",
        )
    return done[-1 - count]


def check_offsets(
    checkpoint: Checkpoint, position: Position, wanted: Mapping[str, Any]
) -> tuple[SourceLine, ...]:
    """Return the sources' lines with the wanted offsets in place of the newest batch's.

    Raises:
        ConfigError: a source is not the query's, or an offset is of another form than its own, or
            after it.
    """
    ends = position.newest.end_offsets
    if unknown := sorted(set(wanted) - set(ends)):
        raise _no_point(
            checkpoint,
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
    new, old = offset_parts(offset), offset_parts(end)
    if isinstance(end, str) or type(offset) is not type(end) or new.keys() != old.keys():
        raise _no_point(
            checkpoint,
            f"the offset of source {source} has another form than its newest, {dump_json(end)}",
            "give all its partitions, as `inspect --batch N --json` shows them under offsets",
        )
    for part, value in new.items():
        number, limit = (_number(each) for each in (value, old[part]))
        if (number is None) != (limit is None) or (number or 0) > (limit or 0):
            raise _no_point(
                checkpoint,
                f"source {source} {part}: {value} is after {old[part]}, where the query stands",
                "a rewind goes back; what lies in between would never be read",
            )


def _number(value: Any) -> int | None:
    if isinstance(value, Mapping):
        value = value.get("logOffset")
    return value if type(value) is int else None


def _no_point(checkpoint: Checkpoint, what: str, hint: str) -> ConfigError:
    return ConfigError(
        what, operation="plan change of checkpoint location", path=checkpoint.url, hint=hint
    )
