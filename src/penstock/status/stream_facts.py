"""The facts of a stream for ``penstock journal ls``: writers, receivers, consumers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.errors import DamagedBlockError, LogFormatError
from penstock.journal import Bounds, JournalStream
from penstock.journal.bounds.quota import uncommitted
from penstock.journal.lag import records_behind
from penstock.journal.layout import WriterId
from penstock.journal.losses.loss_log import Lost, lost_ranges, without_lost
from penstock.journal.retention.consumer_files import ConsumerEntry, Program, read_consumers
from penstock.model import OffsetRange, Offsets
from penstock.receivers import Status, read_status
from penstock.receivers.control import process_exists, receivers_with_status

State = Literal["open", "sealed", "damaged"]


@dataclass(frozen=True, slots=True)
class WriterFacts:
    """One writer: records ``[start_offset, end_offset)`` are held, earlier ones are retired.

    If the newest block is damaged, only its start is known, and the range ends there.
    """

    writer: str
    state: State
    blocks: int
    size_bytes: int
    start_offset: int
    end_offset: int
    records: int
    lost: int
    """The number of skipped records in the range; they do not count as records."""
    uncommitted_bytes: int
    """Bytes of the blocks that some consumer has not committed: what a bound applies to."""


@dataclass(frozen=True, slots=True)
class ConsumerFacts:
    """One consumer: how many durable records it has not committed, and the offsets it has.

    ``program`` says which program last wrote that; None for plain readers.
    ``has_process`` is that process's, as in ReceiverFacts.
    """

    consumer: str
    lag: int
    offsets: Offsets
    program: Program | None
    has_process: bool | None


@dataclass(frozen=True, slots=True)
class ReceiverFacts:
    """One receiver: what it last said of itself, which a killed one cannot take back.

    ``has_process`` says whether the process that said it exists; None for one on another host.
    """

    receiver: str
    status: Status
    has_process: bool | None


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One stream."""

    stream: str
    schema: str
    writers: list[WriterFacts]
    receivers: list[ReceiverFacts]
    consumers: list[ConsumerFacts]
    damage: list[str]
    """Errors of files other than blocks that cannot be read; these are left out here."""
    bounds: Bounds | None
    """The sum of what its receivers may hold, None when one that has not stopped has no bounds."""


def read_stream_facts(stream: JournalStream) -> StreamFacts:
    """Return the facts of a stream; reads one footer for each writer, and no records."""
    damage: list[str] = []
    consumers = _read_consumers(stream, damage)
    writers = read_writer_facts(stream, [entry.offsets for entry in consumers.values()])
    receivers = _receiver_facts(stream, damage)
    return StreamFacts(
        stream=stream.name,
        schema=repr(stream.format),
        writers=list(writers.values()),
        receivers=receivers,
        consumers=[_consumer_facts(name, writers, entry) for name, entry in consumers.items()],
        damage=damage,
        bounds=_bounds([facts.status for facts in receivers]),
    )


def read_writer_facts(
    stream: JournalStream, committed: Collection[Offsets] = ()
) -> dict[WriterId, WriterFacts]:
    """Return the facts of all writers of a stream; reads one footer for each.

    ``committed`` has the committed offsets of each consumer.
    """
    lost = lost_ranges(stream.storage, stream.name)
    return {writer: _writer_facts(stream, writer, lost, committed) for writer in stream.writers()}


def _receiver_facts(stream: JournalStream, damage: list[str]) -> list[ReceiverFacts]:
    found: list[ReceiverFacts] = []
    for receiver in receivers_with_status(stream):
        try:
            if (status := read_status(stream, receiver)) is not None:
                exists = process_exists(status.host, status.pid, status.changed_ms)
                found.append(ReceiverFacts(receiver, status, exists))
        except LogFormatError as error:
            damage.append(str(error))
    return found


def _read_consumers(stream: JournalStream, damage: list[str]) -> Mapping[str, ConsumerEntry]:
    try:
        return read_consumers(stream)
    except LogFormatError as error:
        damage.append(str(error))
        return {}


def _consumer_facts(
    name: str, writers: Mapping[WriterId, WriterFacts], entry: ConsumerEntry
) -> ConsumerFacts:
    program = entry.program
    exists = None if program is None else _exists(program)
    ends = {writer: facts.end_offset for writer, facts in writers.items()}
    lag = records_behind(ends, entry.offsets)
    return ConsumerFacts(name, lag, entry.offsets, program, exists)


def _exists(program: Program) -> bool | None:
    return process_exists(program.host, program.pid, program.committed_ms)


def _bounds(said: list[Status]) -> Bounds | None:
    bounded = [each for each in said if each.state != "stopped"]
    total = Bounds(
        _sum(each.max_bytes for each in bounded), _sum(each.max_lag_records for each in bounded)
    )
    return total if total.is_set else None


def _sum(bounds: Iterable[int | None]) -> int | None:
    """Return the sum of the bounds, None when there are none, or one is unbounded."""
    found = list(bounds)
    each = [bound for bound in found if bound is not None]
    return sum(each) if each and len(each) == len(found) else None


def _writer_facts(
    stream: JournalStream, writer: WriterId, lost: Lost, committed: Collection[Offsets]
) -> WriterFacts:
    blocks = stream.blocks(writer)
    start = blocks[0].start_offset if blocks else 0
    state: State = "open"
    try:
        newest = stream.newest(writer)
        end = newest.end_offset if newest else 0
        sealed = newest is not None and newest.sealed
        state = "sealed" if sealed else "open"
    except DamagedBlockError:
        end, sealed, state = blocks[-1].start_offset, False, "damaged"
    held = OffsetRange(str(writer), start, end)
    records = sum(part.count for part in without_lost([held], lost))
    data = blocks[: len(blocks) - sealed]
    return WriterFacts(
        writer=str(writer),
        state=state,
        blocks=len(data),
        size_bytes=sum(block.size for block in blocks),
        start_offset=start,
        end_offset=end,
        records=records,
        lost=held.count - records,
        uncommitted_bytes=uncommitted(writer, data, end, committed).size_bytes,
    )
