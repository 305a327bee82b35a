"""How a partition's state is put together from files, and when they are put together. Pure.

    snapshot | pack pack | delta delta delta      oldest ... newest
             rank 2 .. 1   rank 0

The state of a version is its layers, applied one after the other: a snapshot (or nothing), then
files of changes. Each batch adds one layer, a delta. FAN_IN neighbours of one rank are merged into
a pack of the next rank, and all layers into a new snapshot when the changes outweigh the old one.
So of n batches since the snapshot there are at most ``FAN_IN * log(n)`` layers, each change is
written ``log(n)`` times, and snapshots cost no more, taken over time, than the changes do.

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
"""How many files of changes of one rank are merged into one of the next."""

SNAPSHOT = -1
"""The rank of a snapshot."""

_LEAST_CHANGES_BYTES = 1 << 20
"""Changes below this are applied in milliseconds: no snapshot is made for them."""

_MERGE_BYTES = 64 << 20
"""Merging is done in memory, so larger groups are left as they are until the next snapshot."""


class Layer(NamedTuple):
    """One file of changes, or a snapshot.

    ``until_ms`` is the batch time of the newest change in it, ``size`` the bytes of its state.
    """

    name: str
    until_ms: int
    rank: int
    size: int


class CatchUp(NamedTuple):
    """How to bring a copy to a version: ``apply`` these layers, to an empty copy if ``afresh``."""

    afresh: bool
    apply: tuple[Layer, ...]


def is_snapshot_due(layers: Sequence[Layer]) -> bool:
    """Whether the changes since the last snapshot outweigh it."""
    changes = sum(layer.size for layer in layers if layer.rank != SNAPSHOT)
    snapshot = sum(layer.size for layer in layers if layer.rank == SNAPSHOT)
    return changes > max(snapshot, _LEAST_CHANGES_BYTES)


def layers_to_merge(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the newest layers that are to become one pack; none when there are too few yet."""
    taken = 0
    rank = 0
    while True:
        run = _run_length(layers[: len(layers) - taken], rank)
        # What was taken so far will be one more of this rank.
        wanted = FAN_IN if taken == 0 else FAN_IN - 1
        size = sum(layer.size for layer in layers[len(layers) - taken - run :])
        if run < wanted or size > _MERGE_BYTES:
            return tuple(layers[len(layers) - taken :])
        taken += run
        rank += 1


def catch_up(have_until_ms: int | None, layers: Sequence[Layer]) -> CatchUp:
    """Decide how a copy at ``have_until_ms``, None for an empty one, comes to hold these layers.

    A copy that is somewhere within a pack takes the whole pack: that sets what the copy has already
    to what it was at the pack's end, and the rest follows.
    """
    newest = max((n for n, layer in enumerate(layers) if layer.rank == SNAPSHOT), default=None)
    if newest is not None and (have_until_ms is None or have_until_ms < layers[newest].until_ms):
        return CatchUp(afresh=True, apply=tuple(layers[newest:]))
    if have_until_ms is None:
        return CatchUp(afresh=True, apply=tuple(layers))
    return CatchUp(False, tuple(layer for layer in layers if layer.until_ms > have_until_ms))


def _run_length(layers: Sequence[Layer], rank: int) -> int:
    """Return how many layers at the end have that rank."""
    run = 0
    while run < len(layers) and layers[-1 - run].rank == rank:
        run += 1
    return run
