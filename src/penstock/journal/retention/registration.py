"""A registered consumer: it holds blocks back, beginning before its first batch.

Invariants:

1. A consumer is registered, holding back everything, before it determines where it begins: it first
   reads the announced deletions, and then lists the blocks. It takes no block before the announced
   offsets, and none before a hole that a retirement has left. So what it begins at stays until it
   commits past it, and is whole; ``retirement``, invariants 4 and 5, have both sides.
2. The offsets at which it began are durable before it takes records, and never change: a first
   batch that runs again after any crash takes the same records. A caller that also stores them
   elsewhere (``settle``) makes them durable there first, while everything is held back.
3. A name belongs to one owner, and its file to one process. A second owner is refused, because each
   would release records that the other still has to read.

A crash between the steps leaves a consumer that holds back everything; the next call of its owner
continues from there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from penstock.errors import AlreadyExistsError, ConfigError
from penstock.journal.layout import WriterId, consumer_path, consumers_folder
from penstock.journal.offsets import WriterEnd, begin_at
from penstock.journal.progress import StreamProgress
from penstock.journal.retention.consumer_files import (
    ConsumerEntry,
    Program,
    create_consumer,
    read_consumer,
    read_consumers,
    retiring_offsets,
    swept_epochs,
    write_consumer,
)
from penstock.journal.retention.holes import first_whole
from penstock.journal.retention.notices import remove_consumer
from penstock.journal.retention.recent_ends import RecentEnds
from penstock.journal.retention.retirement import retired_before
from penstock.journal.stream import JournalStream
from penstock.model import Offsets

StartingOffsets = Literal["earliest", "latest"]
"""Where a new consumer begins: at the oldest kept blocks, or after all durable records."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """An active registration."""

    stream: JournalStream
    name: str
    owner: str
    begin: Offsets
    """The offsets at which it began; writers that are not in it begin at 0."""
    location: str | None = None
    """The program's checkpoint location, shown when consumers are listed."""
    run: str | None = None
    """See ConsumerEntry."""

    def commit(
        self,
        offsets: Offsets,
        retiring: Offsets | None = None,
        *,
        retained: Offsets | None = None,
        swept: Mapping[str, int] | None = None,
    ) -> None:
        """Write the ``entry`` with these arguments to the consumer's file."""
        self.write(self.entry(offsets, retiring, retained=retained, swept=swept))

    def write(self, entry: ConsumerEntry) -> None:
        """Replace the entry in the consumer's file."""
        write_consumer(self.stream, self.name, entry)

    def entry(
        self,
        offsets: Offsets,
        retiring: Offsets | None = None,
        *,
        retained: Offsets | None = None,
        swept: Mapping[str, int] | None = None,
        recent: RecentEnds | None = None,
    ) -> ConsumerEntry:
        """Return the entry which says that its next batches need no records before ``offsets``.

        Args:
            offsets: its committed offsets.
            retiring: the announced offsets up to which it may delete blocks until its next commit.
            retained: the offsets from which blocks are retained; None for ``offsets``.
            swept: the epoch of each receiver before which only seals are left.
            recent: the ends of its recent batches, if ``retained`` follows from them.
        """
        return ConsumerEntry(
            offsets,
            self.owner,
            self.begin,
            retiring or {},
            self.stream.format.kind,
            retained,
            swept or {},
            None if self.location is None else Program.of_this_process(self.location, commits=True),
            self.run,
            recent,
        )


def consumer_of(stream: JournalStream, owner: str) -> str | None:
    """Return the name under which an owner is registered; None before its first registration.

    Raises:
        LogFormatError: a consumer's file is damaged.
    """
    entries = read_consumers(stream).items()
    return next((name for name, entry in entries if entry.owner == owner), None)


def register_consumer(
    stream: JournalStream,
    name: str,
    owner: str,
    *,
    starting: StartingOffsets = "earliest",
    begun: bool = False,
    take_over: bool = False,
    location: str | None = None,
    settle: Callable[[Callable[[], Offsets]], Offsets] = lambda resolve: resolve(),
) -> Consumer:
    """Register a consumer, or return its earlier registration by the same owner.

    Args:
        stream: the stream that it reads.
        name: its name.
        owner: its identity across restarts.
        starting: where a new consumer begins.
        begun: whether it has taken records before; then its offsets do not change, even if its
            registration is gone.
        take_over: whether an existing registration of that name is its own, with any owner.
        location: the program's checkpoint location, to be shown to people.
        settle: makes it durable elsewhere, too, where it begins: returns what is recorded there, or
            else what the function that it is given returns. Called while all is held back. If it
            raises ConfigError, a name that this call has taken is available again.

    Raises:
        ConfigError: another owner has that name, or it was registered for another kind of records;
            or ``settle`` raises it.
        LogFormatError: a consumer's file is damaged.
        StorageError: the journal cannot be reached; the call can be repeated.
    """
    stream.storage.sweep(consumers_folder(stream.name))
    program = None if location is None else Program.of_this_process(location)
    before = read_consumer(stream, name)
    entry, is_created = (before, False) if before else _claim(stream, name, owner, program)
    if entry.owner != owner and not take_over:
        raise ConfigError(
            f"consumer {name!r} of the stream has another owner",
            operation="register consumer",
            path=stream.storage.uri(consumer_path(stream.name, name)),
            ids={"stream": stream.name, "consumer": name},
            hint="choose another name (consumer=); if that consumer is gone for good, "
            f"run `penstock journal consumers rm {shlex.quote(stream.storage.url)} {stream.name} "
            f"{name}`",
        )
    kind = stream.format.kind
    if entry.kind not in (None, kind):
        raise ConfigError(
            f"consumer {name!r} was registered for records of kind {entry.kind}, and the stream's "
            f"description says {kind}",
            operation="register consumer",
            path=stream.storage.uri(consumer_path(stream.name, name)),
            ids={"stream": stream.name, "consumer": name},
            hint="if stream.json was altered, restore it; if the stream was created again, start "
            "with a new checkpoint location and another consumer name",
        )
    entry = replace(entry, kind=kind, program=program)
    known = entry.begin if entry.owner == owner else None
    is_new = False

    def resolve() -> Offsets:
        nonlocal entry, is_new
        if known is not None:
            return known
        if begun:  # its registration was removed
            return {}
        if entry.offsets:  # its predecessor released blocks that are held back from now on
            entry = replace(entry, offsets={}, retained=None, owner=owner, begin=None)
            write_consumer(stream, name, entry)
        is_new = True
        return earliest_offsets(stream) if starting == "earliest" else _latest(stream)

    try:
        begin = settle(resolve)
    except ConfigError:
        if is_created:  # else it is of another call, which may have settled where it begins
            remove_consumer(stream, name)  # it holds back everything
        raise
    if begin != known:
        offsets = begin if is_new else entry.offsets
        write_consumer(stream, name, replace(entry, offsets=offsets, owner=owner, begin=begin))
    return Consumer(stream, name, owner, begin, location)


def _claim(
    stream: JournalStream, name: str, owner: str, program: Program | None
) -> tuple[ConsumerEntry, bool]:
    """Take an available name, holding back everything; return the entry, and whether it is new."""
    entry = ConsumerEntry({}, owner, kind=stream.format.kind, program=program)
    try:
        create_consumer(stream, name, entry)
    except AlreadyExistsError:
        if (found := read_consumer(stream, name)) is not None:
            return found, False
        return _claim(stream, name, owner, program)  # it has been removed since
    return entry, True


def earliest_offsets(stream: JournalStream) -> dict[str, int]:
    """Return the offsets of the oldest blocks that are not being deleted.

    They stay only for a consumer that has registered before.
    """
    retiring = retiring_offsets(stream)  # before the blocks: what it leaves out is deleted by then
    entries = read_consumers(stream).values()
    ends = _unswept_ends(stream)
    starts: dict[WriterId, int] = {}
    for writer in ends:
        announced = retiring.get(str(writer), 0)
        if blocks := [b for b in stream.blocks(writer) if b.start_offset >= announced]:
            gone = retired_before(writer, entries, retiring)
            starts[writer] = first_whole(stream, writer, blocks, gone)
    return begin_at(starts, ends)


def _latest(stream: JournalStream) -> dict[str, int]:
    # What is retired was committed, so all that is announced is before the ends.
    ends = _unswept_ends(stream)
    return begin_at({writer: end.end_offset for writer, end in ends.items()}, ends)


def _unswept_ends(stream: JournalStream) -> Mapping[WriterId, WriterEnd]:
    """Return the ends of all writers that have records left to read."""
    swept = swept_epochs(read_consumers(stream))
    # In an offset map, the presence of an epoch means that earlier ones are finished.
    finished = {str(WriterId(receiver, epoch)): 0 for receiver, epoch in swept.items()}
    return StreamProgress(stream).ends(finished)
