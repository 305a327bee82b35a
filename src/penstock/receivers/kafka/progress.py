"""How far the receivers of a stream are in their topics."""

from __future__ import annotations

from typing import NamedTuple

from penstock.journal import JournalStream
from penstock.receivers.ownership import end_of, read_shares

__all__ = ["PartProgress", "read_progress"]


class PartProgress(NamedTuple):
    """One partition."""

    end: int
    """Where the durable records end."""
    owner: str | None
    """The writer that may publish more; None when no receiver has the partition."""
    topic_id: str | None
    """The id of the topic that it is of; None if that is not known."""


def read_progress(stream: JournalStream) -> dict[str, PartProgress]:
    """Return how far each partition is in the journal; nothing for other streams.

    Raises as ``read_shares``, and DamagedBlockError.
    """
    shares = read_shares(stream)
    positions = {owner: _position(stream, owner) for owner in {s.writer for s in shares.values()}}
    return {
        part: PartProgress(end_of(part, share, positions[share.writer]), share.writer, share.origin)
        for part, share in shares.items()
    }


def _position(stream: JournalStream, owner: str | None) -> object:
    newest = None if owner is None else stream.newest(owner)
    return None if newest is None else newest.position
