"""``diff``: what changed between two batches of a location, or differs between two locations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.checkpoint.tools.batches import Batch
from penstock.checkpoint.tools.checkpoint import Checkpoint, describe_kept
from penstock.checkpoint.tools.offsets import moved, offset_parts, streams_of
from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Change:
    """One value that is not the same on both sides; None where a side has none."""

    name: str
    """Of an offset the source, and the stream and partition; of a setting its key."""
    left: Any
    right: Any
    moved: int | None = None
    """How far it is from left to right; None for what is not a number."""


@dataclass(frozen=True, slots=True)
class BatchDiff:
    """What is not the same in two batches; times are milliseconds since the epoch."""

    left: int
    right: int
    offsets: tuple[Change, ...]
    conf: tuple[Change, ...]
    metadata: tuple[Change, ...]
    """The batch's time, its watermark, whether it is committed, and all else but conf."""


@dataclass(frozen=True, slots=True)
class LocationDiff:
    """What is not the same in two locations."""

    left: str
    right: str
    left_only: tuple[int, ...]
    """Batches that only the left one has an entry for."""
    right_only: tuple[int, ...]
    differing: tuple[int, ...]
    """Batches that both have, with other entries; also those committed in one alone."""
    newest: BatchDiff | None
    """The newest planned batches of both; None when one has none."""


def diff_batches(place: str | os.PathLike[str], left: int, right: int) -> BatchDiff:
    """Return what is not the same in two batches of a location.

    Raises:
        ConfigError: there is no such location or batch, or its entry cannot be read.
        StorageError: the location cannot be listed.
    """
    checkpoint = Checkpoint.open(place)
    return _diff(_one_batch(checkpoint, left), _one_batch(checkpoint, right))


def diff_locations(left: str | os.PathLike[str], right: str | os.PathLike[str]) -> LocationDiff:
    """Return what is not the same in two locations, such as a query's and its copy's.

    Raises:
        ConfigError: there is no such location.
        StorageError: one of them cannot be listed.
    """
    lefts, rights = (
        {batch.batch_id: batch for batch in checkpoint.batches()}
        for checkpoint in (Checkpoint.open(left), Checkpoint.open(right))
    )
    both = sorted(lefts.keys() & rights.keys())
    return LocationDiff(
        left=os.fspath(left),
        right=os.fspath(right),
        left_only=tuple(sorted(lefts.keys() - rights.keys())),
        right_only=tuple(sorted(rights.keys() - lefts.keys())),
        differing=tuple(each for each in both if _content(lefts[each]) != _content(rights[each])),
        newest=_diff_newest(lefts, rights),
    )


def _diff_newest(lefts: Mapping[int, Batch], rights: Mapping[int, Batch]) -> BatchDiff | None:
    left, right = (
        [batch_id for batch_id, batch in side.items() if batch.offsets] for side in (lefts, rights)
    )
    return _diff(lefts[max(left)], rights[max(right)]) if left and right else None


def _content(batch: Batch) -> tuple[object, ...]:
    return (batch.offsets, batch.commit, batch.planned, batch.committed)


def _one_batch(checkpoint: Checkpoint, batch_id: int) -> Batch:
    found = checkpoint.batches([batch_id])
    if not found or found[0].offsets is None:
        problem = found[0].problems[0].message if found and found[0].problems else "is not there"
        raise ConfigError(
            f"offsets/{batch_id} {problem}",
            operation="diff batches",
            path=checkpoint.url,
            ids={"batch_id": batch_id},
            hint=describe_kept(checkpoint.planned),
        )
    return found[0]


def _diff(left: Batch, right: Batch) -> BatchDiff:
    return BatchDiff(
        left=left.batch_id,
        right=right.batch_id,
        offsets=tuple(_offset_changes(left, right)),
        conf=tuple(_changes(left.conf, right.conf)),
        metadata=tuple(_changes(_metadata(left), _metadata(right))),
    )


def _changes(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*left, *right)):
        before, after = left.get(name), right.get(name)
        if before != after:
            yield Change(name, before, after, moved(before, after))


def _offset_changes(left: Batch, right: Batch) -> Iterator[Change]:
    lefts, rights = left.end_offsets, right.end_offsets
    for source in dict.fromkeys((*lefts, *rights)):
        start, end = lefts.get(source), rights.get(source)
        is_by_partition = streams_of(end) is not None
        for change in _changes(offset_parts(start), offset_parts(end)):
            named = replace(change, name=f"{source} {change.name}".rstrip())
            if is_by_partition and change.right is not None:
                yield replace(named, moved=_moved(change.left, change.right))
            else:
                yield named


def _moved(left: Any, right: Any) -> int | None:
    """Return how far a partition moved: one that was not there yet, unlike a source, began at 0."""
    first = 0 if left is None else left
    return moved({"": {"": first}}, {"": {"": right}})


def _metadata(batch: Batch) -> dict[str, Any]:
    fields = dict(batch.offsets.metadata or {}) if batch.offsets else {}
    fields.pop("conf", None)
    return {**fields, "committed": batch.committed}
