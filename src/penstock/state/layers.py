"""The layers of a partition's state, and when they are merged. Pure.

    snapshot | pack pack | delta delta delta      oldest ... newest
             rank 2 .. 1   rank 0

The state of a version is its layers, applied one after the other: a snapshot (or nothing), then
files of changes. Each batch adds one layer, a delta. FAN_IN neighbours of one rank are merged into
a pack of the next rank, and all layers into a new snapshot when the changes outweigh the old one.
So after n batches since the snapshot there are at most ``FAN_IN * log(n)`` layers, each change is
written ``log(n)`` times, and over time snapshots cost no more than the changes.

Prior art: log-structured merge trees; RocksDB's universal compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "FAN_IN",
    "SNAPSHOT",
    "CatchUp",
    "Layer",
    "catch_up",
    "is_snapshot_due",
    "layers_to_merge",
]

FAN_IN = 16
"""The number of files of changes of one rank that are merged into one of the next."""

SNAPSHOT = -1
"""The rank of a snapshot."""

_LEAST_CHANGES_BYTES = 1 << 20
"""Smaller changes are applied in milliseconds, and cause no snapshot."""

_MERGE_BYTES = 64 << 20
"""Files are merged in memory, so larger groups are not merged until the next snapshot."""


class Layer(NamedTuple):
    """One file of changes, or a snapshot.

    ``until_ms`` is the batch time of the newest change in it, ``size`` the bytes of its state.
    """

    name: str
    until_ms: int
    rank: int
    size: int


class CatchUp(NamedTuple):
    """How to update a copy to a version: ``apply`` these layers, to an empty copy if ``afresh``."""

    afresh: bool
    apply: tuple[Layer, ...]


def is_snapshot_due(layers: Sequence[Layer]) -> bool:
    """Whether the changes since the last snapshot are larger than the snapshot."""
    changes = sum(layer.size for layer in layers if layer.rank != SNAPSHOT)
    snapshot = sum(layer.size for layer in layers if layer.rank == SNAPSHOT)
    return changes > max(snapshot, _LEAST_CHANGES_BYTES)


def layers_to_merge(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the newest layers to merge into one pack; none if there are too few."""
    taken = 0
    rank = 0
    while True:
        run = _run_length(layers[: len(layers) - taken], rank)
        # The merged layers become one more layer of this rank.
        wanted = FAN_IN if taken == 0 else FAN_IN - 1
        size = sum(layer.size for layer in layers[len(layers) - taken - run :])
        if run < wanted or size > _MERGE_BYTES:
            return tuple(layers[len(layers) - taken :])
        taken += run
        rank += 1


def catch_up(have_until_ms: int | None, layers: Sequence[Layer]) -> CatchUp:
    """Decide how to update a copy at ``have_until_ms``, None for an empty one, to these layers.

    A copy whose version lies within a pack applies the whole pack: the entries that the copy
    already has are set to their state at the pack's end, and later layers follow.
    """
    newest = max((n for n, layer in enumerate(layers) if layer.rank == SNAPSHOT), default=None)
    if newest is not None and (have_until_ms is None or have_until_ms < layers[newest].until_ms):
        return CatchUp(afresh=True, apply=tuple(layers[newest:]))
    if have_until_ms is None:
        return CatchUp(afresh=True, apply=tuple(layers))
    return CatchUp(False, tuple(layer for layer in layers if layer.until_ms > have_until_ms))


def _run_length(layers: Sequence[Layer], rank: int) -> int:
    """Return the number of layers at the end that have this rank."""
    run = 0
    while run < len(layers) and layers[-1 - run].rank == rank:
        run += 1
    return run
