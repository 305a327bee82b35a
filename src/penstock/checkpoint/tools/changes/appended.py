"""The batches that a change appends to both logs: an earlier point, as that of the newest batch.

A query begins where the newest entry of the offset log ends, if that batch is done. So two batches
are appended under the next ids, P and P + 1, in both logs, each with the offsets of the earlier
batch. The query continues with batch P + 2 (with state, more are appended: see rewind_state). No id
is used twice, for sinks recognize batches by their ids; and a query that still runs fails when it
plans batch P.

Why two: at its start Spark has sources of its first interface (files) get the newest batch once
more, from the end of the batch before. They refuse a range that runs backwards, as that of batch P
does; that of batch P + 1 is empty. As a point to go back to, both are one: the last (see targets).

Source: MicroBatchExecution.populateStartOffsets, FileStreamSource.getBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.checkpoint.log_files import OffsetFile, SourceLine
from penstock.checkpoint.tools.batches import batch_paths, parse_offset
from penstock.checkpoint.tools.changes.available import TopicCheck, describe_source
from penstock.checkpoint.tools.changes.files import new_file
from penstock.checkpoint.tools.changes.plan import FileChange, Plan
from penstock.checkpoint.tools.changes.position import Position, refusal
from penstock.checkpoint.tools.changes.rewind_state import StateRewind, plan_state
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.reading import Content
from penstock.storage import FileInfo

_ENTRIES = 2
"""The number of batches that are appended at least."""
_MOST = 10_000
"""The number of batches that are appended at most: each takes files, and room in the undo file."""
_TWICE = (
    "a sink that appends gets these records a second time; one that skips the batch ids it has"
    " seen takes them as new"
)
_FILE_SINK = (
    "NOT for a query that writes with Spark's own file sink (format parquet, json, csv, ...): its"
    " log in the output's _spark_metadata would lack these batches, and the query fails. Start such"
    " a one on a new location, with a new folder for its output"
)


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
    are_held: TopicCheck | None,
    *,
    drop_state: bool = False,
) -> Plan:
    """Plan that a query of Spark continues from a target; ``drop_state`` empties its state.

    Raises:
        CheckpointError: what the query would read is gone, or its state cannot go back.
    """
    _check_sources(checkpoint, position.offsets, target.sources)
    state = plan_state(
        checkpoint,
        position.newest.conf,
        target.batch_id,
        lowest=position.next_id + _ENTRIES,
        drop=drop_state,
    )
    if state.next_id - position.next_id > _MOST:
        raise refusal(
            checkpoint,
            f"the next batch would be {state.next_id}, and each id from {position.next_id} on needs"
            f" its files: more than {_MOST}",
            "restore a newer backup of the location",
        )
    newest = (checkpoint.planned[-1], checkpoint.committed[-1])
    is_more = command.startswith("promote") or (drop_state and state.changes)
    if _stands_at(position, target, state) and not is_more:
        nothing = f"the query stands at {target.words} already: there is nothing to change"
        return Plan(checkpoint.url, command, (nothing,), (), newest)
    changes = list(state.changes)
    for batch_id in range(position.next_id, state.next_id):
        offsets_path, commit_path = batch_paths(batch_id)
        changes += new_file(checkpoint, offsets_path, target.offsets, target.words)
        changes += new_file(checkpoint, commit_path, target.commit, "its batch counts as done")
    _check_start(checkpoint, changes)
    meaning = [*_meaning(checkpoint, position, target, state)]
    meaning += _sources(checkpoint, position, target, are_held)
    meaning += (_TWICE, _FILE_SINK)
    return Plan(checkpoint.url, command, tuple(meaning), tuple(changes), newest)


def _check_start(checkpoint: Checkpoint, changes: Sequence[FileChange]) -> None:
    """Refuse a plan after which no query could start."""
    after = _Preview(checkpoint, changes)
    (newest,) = after.batches(after.planned[-1:])
    if (problem := after.next_batch(newest).problem) is not None:
        raise refusal(checkpoint, f"the query could not start: {problem}", "see `validate`")


class _Preview(Checkpoint):
    """A location with changes that are not made yet: what a start would find there."""

    def __init__(self, checkpoint: Checkpoint, changes: Iterable[FileChange]) -> None:
        # Not the copies of state: a start reads none.
        self._new = {each.path: each.after for each in changes if isinstance(each.after, bytes)}
        infos = {path: FileInfo(path, len(data)) for path, data in self._new.items()}
        super().__init__(checkpoint.storage, {**checkpoint.files, **infos})

    def read(self, paths: Iterable[str]) -> dict[str, Content]:
        """See Checkpoint.read."""
        wanted = list(paths)
        new = {path: self._new[path] for path in wanted if path in self._new}
        return {**super().read(path for path in wanted if path not in new), **new}


def _stands_at(position: Position, target: Target, state: StateRewind) -> bool:
    """Whether the query continues from there as it is; state changes also without new offsets."""
    if not position.is_done or target.sources != position.offsets.sources:
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
