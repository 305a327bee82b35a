"""The batches that a change appends to both logs: an earlier point, as that of the newest batch.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.checkpoint.log_files import OffsetFile, SourceLine
from penstock.checkpoint.tools.batches import batch_paths, parse_offset
from penstock.checkpoint.tools.changes.available import TopicCheck, describe_source
from penstock.checkpoint.tools.changes.files import new_file
from penstock.checkpoint.tools.changes.plan import FileChange, Plan
from penstock.checkpoint.tools.changes.position import Position, misfit, refusal
from penstock.checkpoint.tools.changes.preview import Preview
from penstock.checkpoint.tools.changes.rewind_state import StateRewind, plan_state
from penstock.checkpoint.tools.changes.sink_log import Missing, SinkLog
from penstock.checkpoint.tools.changes.sink_owner import find_stranger
from penstock.checkpoint.tools.checkpoint import Checkpoint

__all__ = ["Extent", "Target", "plan_appended"]

_ENTRIES = 2
"""So many batches are appended at least."""
_MOST = 10_000
"""So many ids at most are left out: each takes files in the logs, and in the undo file."""
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
class Extent:
    """What goes back besides the two logs."""

    sink: str | os.PathLike[str] | None = None
    drop_state: bool = False

    def __str__(self) -> str:
        sink = "" if self.sink is None else f" --sink {os.fspath(self.sink)}"
        return f"{sink} --drop-state" if self.drop_state else sink


@dataclass(frozen=True, slots=True)
class Target:
    """What the appended entries say, and from where that is in words."""

    words: str
    batch_id: int | None
    """The batch at whose end the query continues; None if it is at no batch's."""
    offsets: bytes
    commit: bytes
    sources: tuple[SourceLine, ...]


def plan_appended(
    checkpoint: Checkpoint,
    position: Position,
    command: str,
    target: Target,
    extent: Extent,
    are_held: TopicCheck | None,
) -> Plan:
    """Plan that a query of Spark continues from a target.

    Raises:
        ConfigError: the sink is not the query's.
        CheckpointError: what the query would read is gone, its state cannot go back, or the sink's
            log does not tell which files were in the output.
    """
    _check_sources(checkpoint, position.offsets, target.sources)
    sink = None if extent.sink is None else SinkLog.open(extent.sink)
    lowest = position.next_id + _ENTRIES
    missing = None
    if sink is not None:
        lowest = max(lowest, _above(sink, checkpoint, position))
        missing = _missing(sink, target)
    state = plan_state(
        checkpoint,
        position.newest.conf,
        target.batch_id,
        lowest=lowest,
        drop=extent.drop_state,
    )
    if state.next_id - position.next_id > _MOST:
        raise refusal(
            checkpoint,
            f"the next batch would be {state.next_id}, and each id from {position.next_id} on needs"
            f" its files: more than {_MOST}",
            "restore a newer backup of the location, or `fork` it with a new folder for the sink",
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
    meaning = [*_meaning(checkpoint, position, target, state)]
    meaning += _sources(checkpoint, position, target, are_held)
    meaning += _sink_meaning(target, sink, missing)
    return Plan(checkpoint.url, command, tuple(meaning), tuple(changes), newest)


def _above(sink: SinkLog, checkpoint: Checkpoint, position: Position) -> int:
    """Return the first id that may run next: a compacted entry of the sink's log is below it."""
    hint = "give the folder that the query's writeStream has as its path"
    newest = max(sink.newest, position.next_id - 1)
    if sink.newest < position.newest.batch_id - (not position.newest.committed):
        raise misfit(
            sink.storage.url,
            f"its log ends with batch {sink.newest}, and the query is at batch"
            f" {position.newest.batch_id}: this is not the query's output",
            hint,
        )
    if (stranger := find_stranger(checkpoint, sink)) is not None:
        raise misfit(sink.storage.url, stranger, hint)
    compacted = sink.first_compacted(newest)
    return newest + 2 if compacted is None else compacted + 1


def _missing(sink: SinkLog, target: Target) -> Missing:
    """Return which files of the output are gone that stay in it; refuse one that was moved."""
    missing = sink.missing(target.batch_id)
    if missing and missing.is_all:
        raise misfit(
            sink.storage.url,
            f"{missing}: the output was moved, or this is a copy of it",
            "move it back to where its log says, which is where the query writes",
        )
    return missing


def _check_start(checkpoint: Checkpoint, changes: Sequence[FileChange]) -> None:
    """Refuse a plan after which no query could start."""
    after = Preview(checkpoint, changes)
    (newest,) = after.batches(after.planned[-1:])
    if (problem := after.next_batch(newest).problem) is not None:
        raise refusal(checkpoint, f"the query could not start: {problem}", "see `validate`")


def _stands_at(
    position: Position, target: Target, state: StateRewind, sink: SinkLog | None
) -> bool:
    """Whether the query continues from there as it is; state changes also without new offsets."""
    if not position.is_done or target.sources != position.offsets.sources:
        return False
    if sink is not None and sink.newest != position.newest.batch_id:
        return False
    return not state.changes or target.batch_id == position.newest.batch_id


def _meaning(
    checkpoint: Checkpoint, position: Position, target: Target, state: StateRewind
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


def _sources(
    checkpoint: Checkpoint, position: Position, target: Target, are_held: TopicCheck | None
) -> Iterator[str]:
    ends = position.newest.end_offsets
    for (source, end), line in zip(ends.items(), target.sources, strict=True):
        if (start := parse_offset(line.offset)) != end:
            yield f"source {source}: {describe_source(checkpoint, source, start, end, are_held)}"


def _sink_meaning(target: Target, sink: SinkLog | None, missing: Missing | None) -> Iterator[str]:
    if missing:
        yield f"the output stays without what is gone from it: {missing}"
    if sink is None:
        yield _TWICE
        yield _FILE_SINK
    elif target.batch_id is None:
        yield f"the output in {sink.storage.url} stays as it is, and gets these records a 2nd time"
    else:
        if target.batch_id < sink.newest:
            yield (
                f"the files of the sink's batches {target.batch_id + 1} to {sink.newest} leave the"
                " output"
            )
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
