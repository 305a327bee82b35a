"""``inspect``: where a query stands, as plain values.

What cannot be read is named beside what can; nothing is judged (``validate`` does).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.location_id import METADATA
from penstock.checkpoint.tools.batches import Batch, Problem
from penstock.checkpoint.tools.checkpoint import Checkpoint, describe_kept, is_of_penstock
from penstock.checkpoint.tools.lag import read_lag
from penstock.checkpoint.tools.next_batch import NextBatch
from penstock.checkpoint.tools.operators import OperatorInfo
from penstock.checkpoint.tools.state_files import OperatorState
from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """A batch; times are milliseconds since the epoch, and ISO 8601 in UTC."""

    batch_id: int
    planned: bool
    committed: bool
    time: str | None
    time_ms: int | None
    watermark_ms: int | None
    next_watermark_ms: int | None
    """The watermark from the next batch on, as the commit says."""
    took_ms: int | None
    """From planning to commit by the times of the files; None where those do not tell."""
    start_offsets: dict[str, Any]
    """Where each source began: the offsets of the batch before, empty where those are not kept."""
    offsets: dict[str, Any]
    """Each source's end offset: its JSON, other text as it is, None for no part in the batch."""
    conf: dict[str, Any]
    offset_version: int | None
    commit_version: int | None


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a source keeps for itself in ``sources/<source>``."""

    source: str
    files: int
    size_bytes: int
    newest: str | None
    """The name of its newest log file, such as ``9.compact``; None when it has none."""


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """A stateful operator. Batch N leaves version N + 1 of its state."""

    operator: str
    name: str | None
    """What Spark calls it, such as ``stateStoreSave``; None where it wrote no description."""
    format: str
    partitions: int
    stores: tuple[str, ...]
    oldest_version: int | None
    newest_version: int | None
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """A checkpoint location, as it was when its files were listed."""

    location: str
    id: str | None
    """Of the query or program, over all its runs; None when the metadata file tells none."""
    engine: str
    """Who planned the newest batch: ``Structured Streaming`` or ``penstock``."""
    next: NextBatch
    batches: tuple[BatchFacts, ...]
    """Ascending."""
    earlier: int
    """How many batches came before those and were not asked for."""
    sources: tuple[SourceFacts, ...]
    operators: tuple[OperatorFacts, ...]
    lag: dict[str, int]
    """The records that no batch has taken, by source and stream, of journals in the location."""
    problems: tuple[Problem, ...]
    """Files among those above that cannot be read."""


def inspect(
    place: str | os.PathLike[str],
    *,
    batch_ids: Iterable[int] | None = None,
    last: int | None = None,
) -> Inspection:
    """Return where the query or program of a checkpoint location stands.

    Args:
        place: path or URL of the location.
        batch_ids: only these batches.
        last: only so many of the newest batches.

    Raises:
        ConfigError: there is no checkpoint location, or it has none of ``batch_ids``.
        StorageError: it cannot be listed.
    """
    checkpoint = Checkpoint.open(place)
    known = sorted({*checkpoint.planned, *checkpoint.committed})
    wanted = known if batch_ids is None else sorted(set(known).intersection(batch_ids))
    if batch_ids is not None and not wanted:
        raise ConfigError(
            "the checkpoint location has no such batch",
            operation="inspect checkpoint location",
            path=checkpoint.url,
            hint=describe_kept(known),
        )
    wanted = wanted if last is None else wanted[-last:]
    newest = checkpoint.planned[-1:]
    previous = {batch_id - 1 for batch_id in {*wanted, *newest}}
    read = {each.batch_id: each for each in checkpoint.batches({*wanted, *previous, *newest})}
    batches = [read[batch_id] for batch_id in wanted if batch_id in read]
    ends = {batch_id: batch.end_offsets for batch_id, batch in read.items()}
    newest_batch = read.get(newest[0]) if newest else None
    return Inspection(
        location=checkpoint.url,
        id=checkpoint.read_id(),
        engine="penstock" if is_of_penstock(newest_batch) else "Structured Streaming",
        next=_next(checkpoint, newest_batch, read.get(newest[0] - 1) if newest else None),
        batches=tuple(_batch_facts(each, ends) for each in batches),
        earlier=sum(batch_id < wanted[0] for batch_id in known) if wanted else 0,
        sources=_source_facts(checkpoint),
        operators=tuple(_operator_facts(*each) for each in checkpoint.operators()),
        lag=read_lag(checkpoint, newest_batch)
        if newest_batch and is_of_penstock(newest_batch)
        else {},
        problems=tuple(problem for batch in batches for problem in batch.problems),
    )


def _next(checkpoint: Checkpoint, newest: Batch | None, before: Batch | None) -> NextBatch:
    """Return what a start does first: it reads the id before the logs."""
    following = checkpoint.next_batch(newest, before)
    if newest is None or following.problem is not None:
        return following
    problem = None
    if METADATA not in checkpoint.files:
        problem = f"{METADATA} is missing (Spark before 4.1 starts, under a new id)"
    elif checkpoint.read_id() is None:
        problem = f"{METADATA} cannot be read: it holds no id"
    elif checkpoint.altered([METADATA], is_strict=is_of_penstock(newest)):
        problem = f"{METADATA} does not fit its checksum"
    return replace(following, problem=problem)


def iso_time(time_ms: int | None) -> str | None:
    """Return a time since the epoch in ISO 8601, UTC; None for none, and for no year of ours."""
    if time_ms is None:
        return None
    try:
        when = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _batch_facts(batch: Batch, ends: Mapping[int, dict[str, Any]]) -> BatchFacts:
    return BatchFacts(
        batch_id=batch.batch_id,
        planned=batch.planned,
        committed=batch.committed,
        time=iso_time(batch.time_ms),
        time_ms=batch.time_ms,
        watermark_ms=batch.watermark_ms,
        next_watermark_ms=batch.next_watermark_ms,
        took_ms=batch.took_ms,
        start_offsets=ends.get(batch.batch_id - 1, {}),
        offsets=ends[batch.batch_id],
        conf=batch.conf,
        offset_version=batch.offsets.version if batch.offsets else None,
        commit_version=batch.commit.version if batch.commit else None,
    )


def _source_facts(checkpoint: Checkpoint) -> tuple[SourceFacts, ...]:
    found: dict[str, list[str]] = {}
    for path in checkpoint.files:
        parts = path.split("/")
        if parts[0] == "sources" and len(parts) > 2:
            found.setdefault(parts[1], []).append(path)
    return tuple(
        SourceFacts(
            source=source,
            files=len(found[source]),
            size_bytes=sum(checkpoint.files[path].size for path in found[source]),
            newest=_newest_log(path.rpartition("/")[2] for path in found[source]),
        )
        for source in sorted(found)
    )


def _newest_log(names: Iterable[str]) -> str | None:
    numbered = ((parse_batch_id(name.removesuffix(".compact")), name) for name in names)
    return max(((n, name) for n, name in numbered if n is not None), default=(0, None))[1]


def _operator_facts(state: OperatorState, info: OperatorInfo | None) -> OperatorFacts:
    return OperatorFacts(
        operator=state.operator,
        name=info.name if info else None,
        format=state.format,
        partitions=len({store.partition for store in state.stores}),
        stores=tuple(sorted({store.name for store in state.stores})),
        oldest_version=state.versions[0] if state.versions else None,
        newest_version=state.versions[-1] if state.versions else None,
        files=state.files,
        size_bytes=state.size_bytes,
    )
