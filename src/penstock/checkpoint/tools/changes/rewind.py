"""``rewind`` and ``promote``: a query of Spark continues from where an earlier batch ended.

A query begins where the newest entry of the offset log ends, if that batch is done. So two batches
are appended under the next ids, P and P + 1, in both logs, each with the offsets of the earlier
batch. The query continues with batch P + 2 (with state, more are appended: see rewind_state). No id
is used twice, for sinks recognize batches by their ids; and a query that runs against all evidence
fails when it plans batch P.

Why two: at its start Spark has sources of its first interface (files) get the newest batch once
more, from the end of the batch before. They refuse a range that runs backwards, as that of batch P
does; that of batch P + 1 is empty. As a point to go back to, both are one: the last (see targets).

Source: MicroBatchExecution.populateStartOffsets, FileStreamSource.getBatch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.log_files import OffsetFile, SourceLine
from penstock.checkpoint.log_format import dump_json
from penstock.checkpoint.tools.batches import batch_paths, parse_offset
from penstock.checkpoint.tools.changes.apply import interrupted_plan
from penstock.checkpoint.tools.changes.available import describe_source
from penstock.checkpoint.tools.changes.entries import encode_commit, encode_offsets
from penstock.checkpoint.tools.changes.files import new_file
from penstock.checkpoint.tools.changes.plan import FileChange, Plan
from penstock.checkpoint.tools.changes.position import (
    Position,
    find_position,
    misfit,
    refusal,
    require_done,
)
from penstock.checkpoint.tools.changes.preview import Preview
from penstock.checkpoint.tools.changes.rewind_own import plan_own_rewind
from penstock.checkpoint.tools.changes.rewind_state import StateRewind, plan_state
from penstock.checkpoint.tools.changes.sink_log import SinkLog
from penstock.checkpoint.tools.changes.targets import (
    batch_at,
    batch_before,
    check_offsets,
    last_appended,
)
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.clock import Clock, SystemClock

__all__ = ["plan_promote", "plan_rewind"]

_TWICE = (
    "a sink that appends gets these records a second time; one that skips the batch ids it has"
    " seen takes them as new"
)
_FILE_SINK = (
    "NOT for a query that writes with Spark's own file sink (format parquet, json, csv, ...): its"
    " log in the output's _spark_metadata would lack these batches, and the query fails. For such a"
    " one, give the folder of its output (--sink)"
)


@dataclass(frozen=True, slots=True)
class _Extent:
    """What goes back besides the two logs."""

    sink: str | os.PathLike[str] | None = None
    drop_state: bool = False

    def __str__(self) -> str:
        sink = "" if self.sink is None else f" --sink {os.fspath(self.sink)}"
        return f"{sink} --drop-state" if self.drop_state else sink


@dataclass(frozen=True, slots=True)
class _Target:
    """What the appended entries say, and from where that is in words."""

    words: str
    batch_id: int | None
    """The batch at whose end the query continues; None if it is at no batch's."""
    offsets: bytes
    commit: bytes
    sources: tuple[SourceLine, ...]


def plan_rewind(
    place: str | os.PathLike[str],
    *,
    to_batch: int | None = None,
    to_offsets: Mapping[str, Any] | None = None,
    to_timestamp_ms: int | None = None,
    shift_by: int | None = None,
    sink: str | os.PathLike[str] | None = None,
    drop_state: bool = False,
    clock: Clock | None = None,
) -> Plan:
    """Plan that a query reads again what came after a point; give exactly one point.

    A query of Spark reads it in new batches; a penstock program runs its batches again.

    The query keeps its settings. If it has state, that goes back, too, and so does its watermark.

    Args:
        place: path or URL of the checkpoint location.
        to_batch: the end of this batch.
        to_offsets: these offsets, by source as in ``BatchFacts.offsets``; other sources stay.
        to_timestamp_ms: the end of the newest batch that was planned at that time or before.
        shift_by: so many batches before where the query stands.
        sink: the folder to which the query writes with Spark's own file sink: its output goes back,
            too.
        drop_state: empty the state instead of taking it back.
        clock: for the time of the new entry.

    Raises:
        ConfigError: there is no such point, or no location.
        CheckpointError: the query cannot go back: it has state, or what it would read is gone; or
            the location is damaged, or another change is not finished.
    """
    point = {
        "--to-batch": to_batch,
        "--to-offsets": None if to_offsets is None else _json(place, to_offsets),
        "--to-timestamp": to_timestamp_ms,
        "--shift-by": shift_by,
    }
    extent = _Extent(sink, drop_state)
    checkpoint, command = Checkpoint.open(place), f"rewind {_only(place, point)}{extent}"
    if (begun := interrupted_plan(checkpoint, command)) is not None:
        return begun
    position = find_position(checkpoint)
    time_ms = (clock or SystemClock()).time_ms()
    is_own = is_of_penstock(position.newest)
    if to_offsets is not None and not is_own:
        sources = check_offsets(checkpoint, position, to_offsets)
        target = _at_offsets(position, sources, time_ms, drop_state=drop_state)
        return _plan(checkpoint, position, command, target, extent)
    if to_timestamp_ms is not None:
        to_batch = batch_at(checkpoint, to_timestamp_ms)
    elif shift_by is not None:
        to_batch = batch_before(checkpoint, shift_by, is_own=is_own)
    if is_own:
        if extent != _Extent():
            raise misfit(checkpoint.url, f"it is of a penstock program: no{extent}", "leave it out")
        return plan_own_rewind(checkpoint, position, command, to_batch)
    assert to_batch is not None
    target = _at_batch(checkpoint, position, last_appended(checkpoint, to_batch), time_ms)
    return _plan(checkpoint, position, command, target, extent)


def _json(place: str | os.PathLike[str], offsets: Mapping[str, Any]) -> str:
    try:
        return dump_json(dict(offsets))
    except (TypeError, ValueError) as error:
        raise misfit(
            os.fspath(place),
            f"the offsets to go back to are no JSON: {error}",
            "give them as `inspect --json` shows them",
        ) from error


def _only(place: str | os.PathLike[str], point: Mapping[str, object]) -> str:
    """Return the one option that was given, with its value."""
    given = [f"{option} {value}" for option, value in point.items() if value is not None]
    if len(given) != 1:
        raise misfit(
            os.fspath(place), "give exactly one point to go back to", f"one of {', '.join(point)}"
        )
    return given[0]


def _at_offsets(
    position: Position, sources: tuple[SourceLine, ...], time_ms: int, *, drop_state: bool
) -> _Target:
    # Without its state the query begins anew, and with the old watermark it would drop all as late.
    return _Target(
        "these offsets",
        None,
        encode_offsets(
            position.offsets,
            sources,
            {"batchTimestampMs": time_ms, **({"batchWatermarkMs": 0} if drop_state else {})},
        ),
        encode_commit(position.commit, {"nextBatchWatermarkMs": 0} if drop_state else {}),
        sources,
    )


def _at_batch(checkpoint: Checkpoint, position: Position, batch_id: int, time_ms: int) -> _Target:
    """Return the end of a batch, with the newest settings."""
    offsets, commit = require_done(checkpoint, batch_id)
    changed: dict[str, Any] = {"batchTimestampMs": time_ms}
    marks: dict[str, Any] = {}
    if checkpoint.operators():  # without state no watermark has an effect, and they only grow
        changed |= _fields(offsets.metadata, "batchWatermarkMs")
        marks = _fields(commit.metadata, "nextBatchWatermarkMs")
    return _Target(
        f"the end of batch {batch_id}",
        batch_id,
        encode_offsets(position.offsets, offsets.sources, changed),
        encode_commit(position.commit, marks),
        offsets.sources,
    )


def _fields(metadata: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    return {name: metadata[name]} if metadata and name in metadata else {}


def plan_promote(
    place: str | os.PathLike[str],
    batch_id: int,
    *,
    sink: str | os.PathLike[str] | None = None,
    clock: Clock | None = None,
) -> Plan:
    """Plan that a query uses an old entry: its offsets, and also the settings recorded in it.

    Args:
        place: path or URL of the checkpoint location.
        batch_id: the batch of that entry.
        sink: as for ``plan_rewind``.
        clock: for the time of the new entry.

    Raises:
        ConfigError: there is no such batch, or no location.
        CheckpointError: as for ``plan_rewind``.
    """
    extent = _Extent(sink)
    checkpoint, command = Checkpoint.open(place), f"promote {batch_id}{extent}"
    if (begun := interrupted_plan(checkpoint, command)) is not None:
        return begun
    position = find_position(checkpoint)
    if is_of_penstock(position.newest):
        raise refusal(
            checkpoint,
            "a penstock program takes the records of each batch, and its settings, by its entry",
            "`rewind` runs its batches again",
        )
    batch_id = last_appended(checkpoint, batch_id)
    offsets, commit = require_done(checkpoint, batch_id)
    changed = {"batchTimestampMs": (clock or SystemClock()).time_ms()}
    target = _Target(
        f"the end of batch {batch_id}, with its settings",
        batch_id,
        encode_offsets(offsets, offsets.sources, changed),
        encode_commit(commit, {}),
        offsets.sources,
    )
    return _plan(checkpoint, position, command, target, extent)


def _plan(
    checkpoint: Checkpoint, position: Position, command: str, target: _Target, extent: _Extent
) -> Plan:
    _check_sources(checkpoint, position.offsets, target.sources)
    sink = None if extent.sink is None else SinkLog.open(extent.sink)
    state = plan_state(
        checkpoint,
        position,
        target.batch_id,
        drop=extent.drop_state,
        next_id=position.next_id if sink is None else _above(sink, position),
    )
    newest = (checkpoint.planned[-1], checkpoint.committed[-1])
    is_more = command.startswith("promote") or (extent.drop_state and state.changes)
    if _stands_at(position, target, state, sink) and not is_more:
        nothing = f"the query stands at {target.words} already: there is nothing to change"
        return Plan(checkpoint.url, command, (nothing,), (), newest)
    changes = list(state.changes)
    for batch_id in range(position.next_id, state.next_id):
        offsets_path, commit_path = batch_paths(batch_id)
        changes += new_file(checkpoint, offsets_path, target.offsets, target.words)
        changes += new_file(checkpoint, commit_path, target.commit, "its batch counts as done")
    if sink is not None:
        changes += sink.changes(target.batch_id, state.next_id)
    _check_start(checkpoint, changes)
    meaning = (*_meaning(checkpoint, position, target, state), *_sink_meaning(target, sink))
    return Plan(checkpoint.url, command, meaning, tuple(changes), newest)


def _above(sink: SinkLog, position: Position) -> int:
    """Return the first id that may run next: a compacted entry of the sink's log is below it."""
    newest = max(sink.newest, position.next_id - 1)
    if sink.newest < position.newest.batch_id - (not position.newest.committed):
        raise misfit(
            sink.storage.url,
            f"its log ends with batch {sink.newest}, and the query is at batch"
            f" {position.newest.batch_id}: this is not the query's output",
            "give the folder that the query's writeStream has as its path",
        )
    compacted = sink.first_compacted(newest)
    return newest + 2 if compacted is None else compacted + 1


def _check_start(checkpoint: Checkpoint, changes: Sequence[FileChange]) -> None:
    """Refuse a plan after which no query could start."""
    after = Preview(checkpoint, changes)
    (newest,) = after.batches(after.planned[-1:])
    if (problem := after.next_batch(newest).problem) is not None:
        raise refusal(checkpoint, f"the query could not start: {problem}", "see `validate`")


def _stands_at(
    position: Position, target: _Target, state: StateRewind, sink: SinkLog | None
) -> bool:
    """Whether the query continues from there as it is; state changes also without new offsets."""
    if not position.is_done or target.sources != position.offsets.sources:
        return False
    if sink is not None and sink.newest != position.newest.batch_id:
        return False
    return not state.changes or target.batch_id == position.newest.batch_id


def _meaning(
    checkpoint: Checkpoint, position: Position, target: _Target, state: StateRewind
) -> Iterator[str]:
    first, last = position.next_id, state.next_id - 1
    yield f"batches {first} to {last} do no work: they set the query to {target.words}"
    yield f"batch {state.next_id} runs next, and begins there"
    if state.words is not None:
        yield state.words
    if position.problem is not None:
        yield (
            f"the query could not start as it was ({position.problem}): it reads the new entries"
            " instead, and the damaged one is retired as any other"
        )
    elif not position.is_done:
        yield (
            f"batch {position.newest.batch_id}, planned and not committed, does not run again under"
            " its id; what it would have read is read by new batches"
        )
    ends = position.newest.end_offsets
    for (source, end), line in zip(ends.items(), target.sources, strict=True):
        if (start := parse_offset(line.offset)) != end:
            yield f"source {source}: {describe_source(checkpoint, source, start, end)}"


def _sink_meaning(target: _Target, sink: SinkLog | None) -> Iterator[str]:
    if sink is None:
        yield _TWICE
        yield _FILE_SINK
    elif target.batch_id is None:
        yield f"the output in {sink.storage.url} stays as it is, and gets these records a 2nd time"
    else:
        yield (
            f"the output in {sink.storage.url} goes back, too, for all who read it with Spark: its"
            " log names the files of the batches up to there. Later files stay in the folder"
        )


def _check_sources(
    checkpoint: Checkpoint, newest: OffsetFile, target: Sequence[SourceLine]
) -> None:
    """Refuse a batch whose sources are not those that the query has now."""
    if [each.name for each in newest.sources] != [each.name for each in target]:
        raise refusal(
            checkpoint,
            f"that batch has {len(target)} sources and the newest has {len(newest.sources)}, or"
            " they have other names: the query was changed in between",
            "choose a later batch",
        )
