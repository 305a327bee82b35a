"""The last state of a location in five requests, however much it keeps: for monitors.

Two listings, the newest entry of each log, and the metadata. One more where the entry before the
newest is missing: only then it counts whether the query has state.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock.checkpoint.location_id import METADATA
from penstock.checkpoint.tools.batches import Batch, Problem, parse_batch
from penstock.checkpoint.tools.checkpoint import (
    Checkpoint,
    nothing_there,
    open_location,
    parse_id,
)
from penstock.checkpoint.tools.next_batch import NextBatch, lacks_start
from penstock.checkpoint.tools.reading import list_folders


@dataclass(frozen=True, slots=True)
class LastState:
    """Where a query stands, without its history and state."""

    location: str
    id: str | None
    """Of the query, over all its runs; None when the metadata file tells none."""
    newest: Batch | None
    """The newest planned batch; None when none was planned."""
    committed: int | None
    """The newest committed batch id."""
    next: NextBatch

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The entries that cannot be read."""
        return self.newest.problems if self.newest else ()


def last_state(place: str | os.PathLike[str]) -> LastState:
    """Return where a query stands.

    Args:
        place: path or URL of its checkpoint location.

    Raises:
        ConfigError: there is no checkpoint location.
        StorageError: it cannot be listed.
    """
    storage = open_location(place)
    files = list_folders(storage, ("offsets", "commits"))
    checkpoint = Checkpoint(storage, files)
    if lacks_start(checkpoint.planned):
        checkpoint = Checkpoint(storage, files | list_folders(storage, ("state",)))
    planned, committed = checkpoint.planned, checkpoint.committed
    paths = [
        f"{log}/{ids[-1]}" for log, ids in (("offsets", planned), ("commits", committed)) if ids
    ]
    contents = checkpoint.read([METADATA, *paths])
    if not contents:
        raise nothing_there(place)
    newest = parse_batch(planned[-1], contents, checkpoint.files) if planned else None
    return LastState(
        location=checkpoint.url,
        id=parse_id(contents.get(METADATA)),
        newest=newest,
        committed=committed[-1] if committed else None,
        next=checkpoint.next_batch(newest),
    )
