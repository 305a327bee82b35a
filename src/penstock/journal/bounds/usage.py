"""How much of a journal stream's bounds is held, and claimed, by listing.

A claim is a small file in an open writer's folder: how much its receiver may come to hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from penstock.errors import LogFormatError, NotFoundError
from penstock.journal.block import BlockFooter
from penstock.journal.bounds.amounts import NOTHING, Amount, Bounds
from penstock.journal.layout import WriterId, room_path
from penstock.journal.retention.consumer_files import (
    consumers,
    read_consumers,
    swept_epochs,
)
from penstock.journal.retention.retirement import floor_of
from penstock.journal.stream import BlockEntry, JournalStream
from penstock.model import Offsets

__all__ = ["Claim", "ReceiverUsage", "StreamUsage", "read_claim", "remove_claim", "write_claim"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What an open writer's receiver may come to hold, and the bounds that it keeps to."""

    upto: Amount
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class ReceiverUsage:
    """One receiver, with all of its epochs."""

    held: Amount = NOTHING
    claimed: Amount = NOTHING
    """The largest claim of a writer that is not sealed; what sealed ones hold is final."""
    is_open: bool = False

    @property
    def reserved(self) -> Amount:
        """What it holds or may come to hold."""
        return self.held.at_least(self.claimed)

    def with_later(self, later: ReceiverUsage) -> ReceiverUsage:
        """Return both together: these are earlier epochs of the receiver, that is a later one.

        Until the later writer has sealed the earlier one, that one may go on up to its claim.
        """
        return ReceiverUsage(
            self.held + later.held,
            self.claimed.at_least(later.claimed),
            self.is_open or later.is_open,
        )


class StreamUsage:
    """Looks at one stream again and again; what is over is not looked at twice. Not thread-safe."""

    def __init__(self, stream: JournalStream, *, count_records: bool) -> None:
        self._stream = stream
        self._count_records = count_records
        self._newest: dict[WriterId, BlockFooter] = {}
        self._empty: set[WriterId] = set()  # sealed, and nothing but the seal is left
        self._swept: Mapping[str, int] | None = None

    def look(self) -> dict[str, ReceiverUsage]:
        """Return what each receiver of the stream holds and claims.

        Raises:
            StorageError, DamagedBlockError, LogFormatError: it cannot be told.
        """
        committed = consumers(self._stream) if self._count_records else {}
        if self._swept is None:
            self._swept = self._read_swept()
        usage: dict[str, ReceiverUsage] = {}
        for writer in self._stream.writers():
            before = usage.setdefault(writer.receiver, ReceiverUsage())
            is_swept = writer.epoch < self._swept.get(writer.receiver, 0)
            if not is_swept and writer not in self._empty:
                usage[writer.receiver] = before.with_later(self._look_at(writer, committed))
        return usage

    def _read_swept(self) -> Mapping[str, int]:
        """Return what consumers know of epochs that hold nothing, to be spared looking at them."""
        with suppress(LogFormatError):
            return swept_epochs(read_consumers(self._stream))
        return {}

    def _look_at(self, writer: WriterId, committed: Mapping[str, Offsets]) -> ReceiverUsage:
        # In this order: a writer that is open here may go on up to its claim, so its blocks are
        # counted by that; one that is sealed here has all its blocks in the listing below.
        newest = self._stream.newest(writer, self._newest.get(writer))
        is_open = newest is None or not newest.sealed
        claim = read_claim(self._stream, writer) if is_open else None
        blocks = self._stream.blocks(writer)
        if newest is None:
            return ReceiverUsage(NOTHING, NOTHING if claim is None else claim.upto, is_open)
        self._newest[writer] = newest
        if not is_open:
            blocks = blocks[:-1]  # seals stay for ever, so they are no part of a bound
            if not blocks:
                self._empty.add(writer)
        records = _uncommitted(writer, blocks, newest, committed) if self._count_records else 0
        held = Amount(sum(block.size for block in blocks), records)
        return ReceiverUsage(held, NOTHING if claim is None else claim.upto, is_open)


def _uncommitted(
    writer: WriterId,
    blocks: list[BlockEntry],
    newest: BlockFooter,
    committed: Mapping[str, Offsets],
) -> int:
    if not blocks:
        return 0
    first = blocks[0].start_offset
    floor = floor_of(writer, committed.values()) if committed else first
    return 0 if floor is None else max(0, newest.end_offset - max(floor, first))


def write_claim(stream: JournalStream, writer: WriterId, claim: Claim) -> None:
    """Make a claim known; raises StorageError when it cannot be written."""
    values = {"upto": asdict(claim.upto), "bounds": asdict(claim.bounds)}
    path = room_path(stream.name, writer)
    stream.storage.create(path, json.dumps(values).encode(), overwrite=True)


def remove_claim(stream: JournalStream, writer: WriterId) -> None:
    """Forget the claim of a writer that is sealed."""
    stream.storage.delete(room_path(stream.name, writer))


def read_claim(stream: JournalStream, writer: WriterId) -> Claim | None:
    """Return an open writer's claim, None when it has made none.

    Raises:
        LogFormatError: the file is damaged.
    """
    path = room_path(stream.name, writer)
    try:
        values = json.loads(stream.storage.read(path))
        upto, bounds = values["upto"], values["bounds"]
        return Claim(
            Amount(upto["size_bytes"], upto["records"]),
            Bounds(bounds["max_bytes"], bounds["max_lag_records"]),
        )
    except NotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise LogFormatError(
            "a writer's claim on the journal's room cannot be read",
            operation="read claim",
            path=stream.storage.uri(path),
            ids={"stream": stream.name, "writer": str(writer)},
            hint="restart that receiver, which claims anew",
        ) from e
