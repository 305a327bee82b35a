"""``rewind`` and ``promote``: a query of Spark continues from where an earlier batch ended.

Which point that is, and the entries that say so; the rest is in ``appended``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.checkpoint.log_files import SourceLine
from penstock.checkpoint.log_format import dump_json
from penstock.checkpoint.tools.changes.appended import Target, plan_appended
from penstock.checkpoint.tools.changes.available import TopicCheck
from penstock.checkpoint.tools.changes.entries import encode_commit, encode_offsets
from penstock.checkpoint.tools.changes.hold import check_not_barred
from penstock.checkpoint.tools.changes.offsets_own import plan_own_offsets
from penstock.checkpoint.tools.changes.plan import Plan
from penstock.checkpoint.tools.changes.position import (
    Position,
    find_position,
    misfit,
    refusal,
    require_done,
)
from penstock.checkpoint.tools.changes.rewind_own import plan_own_rewind
from penstock.checkpoint.tools.changes.targets import (
    batch_at,
    batch_before,
    check_offsets,
    last_appended,
)
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.clock import Clock, SystemClock


def plan_rewind(
    place: str | os.PathLike[str],
    *,
    to_batch: int | None = None,
    to_offsets: Mapping[str, Any] | None = None,
    to_timestamp_ms: int | None = None,
    shift_by: int | None = None,
    drop_state: bool = False,
    are_held: TopicCheck | None = None,
    clock: Clock | None = None,
) -> Plan:
    """Plan that a query reads again what came after a point; give exactly one point.

    A query of Spark reads it in new batches; a penstock program runs its batches again, or
    continues from other offsets of Kafka topics.

    The query keeps its settings. If it has state, that goes back, too, and so does its watermark.

    Args:
        place: path or URL of the checkpoint location.
        to_batch: the end of this batch.
        to_offsets: these offsets, by source as in ``BatchFacts.offsets``; other sources stay.
        to_timestamp_ms: the end of the newest batch that was planned at that time or before.
        shift_by: so many batches before where the query stands.
        drop_state: empty the state instead of taking it back.
        are_held: checks that Kafka's topics still have what is read again.
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
    command = f"rewind {_only(place, point)}{' --drop-state' if drop_state else ''}"
    checkpoint = Checkpoint.open(place)
    check_not_barred(checkpoint)
    position = find_position(checkpoint)
    time_ms = (clock or SystemClock()).time_ms()
    is_own = is_of_penstock(position.newest)
    if is_own and drop_state:
        raise misfit(checkpoint.url, "it is of a penstock program: no --drop-state", "leave it out")
    if to_offsets is not None and is_own:
        return plan_own_offsets(checkpoint, position, command, to_offsets, are_held)
    if to_offsets is not None:
        sources = check_offsets(checkpoint, position, to_offsets)
        target = _at_offsets(position, sources, time_ms, drop_state=drop_state)
        return plan_appended(checkpoint, position, command, target, are_held, drop_state=drop_state)
    if to_timestamp_ms is not None:
        to_batch = batch_at(checkpoint, to_timestamp_ms)
    elif shift_by is not None:
        to_batch = batch_before(checkpoint, shift_by, is_own=is_own)
    if is_own:
        return plan_own_rewind(checkpoint, position, command, to_batch, are_held)
    assert to_batch is not None
    target = _at_batch(checkpoint, position, last_appended(checkpoint, to_batch), time_ms)
    return plan_appended(checkpoint, position, command, target, are_held, drop_state=drop_state)


def _json(place: str | os.PathLike[str], offsets: Mapping[str, Any]) -> str:
    try:
        return dump_json(dict(offsets))
    except (TypeError, ValueError) as error:
        raise misfit(
            os.fspath(place),
            f"the offsets to go back to are not JSON: {error}",
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
) -> Target:
    # Without its state the query starts from nothing: with the old watermark it would drop all
    # records as late.
    return Target(
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


def _at_batch(checkpoint: Checkpoint, position: Position, batch_id: int, time_ms: int) -> Target:
    """Return the end of a batch, with the newest settings."""
    offsets, commit = require_done(checkpoint, batch_id)
    changed: dict[str, Any] = {"batchTimestampMs": time_ms}
    marks: dict[str, Any] = {}
    if checkpoint.operators():  # without state no watermark has an effect, and they only grow
        changed |= _fields(offsets.metadata, "batchWatermarkMs")
        marks = _fields(commit.metadata, "nextBatchWatermarkMs")
    return Target(
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
    are_held: TopicCheck | None = None,
    clock: Clock | None = None,
) -> Plan:
    """Plan that a query uses an old entry: its offsets, and also the settings recorded in it.

    Args:
        place: path or URL of the checkpoint location.
        batch_id: the batch of that entry.
        are_held: as for ``plan_rewind``.
        clock: for the time of the new entry.

    Raises:
        ConfigError: there is no such batch, or no location.
        CheckpointError: as for ``plan_rewind``.
    """
    command = f"promote {batch_id}"
    checkpoint = Checkpoint.open(place)
    check_not_barred(checkpoint)
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
    target = Target(
        f"the end of batch {batch_id}, with its settings",
        batch_id,
        encode_offsets(offsets, offsets.sources, changed),
        encode_commit(commit, {}),
        offsets.sources,
    )
    return plan_appended(checkpoint, position, command, target, are_held)
