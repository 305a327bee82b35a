"""Commits and retirement after each batch; both together write one file.

An entry that equals the one in the file is not written: an idle batch costs one listing. The
consumers' names are always listed, so a removed registration is created again.

Examines only writers for which the consumers have moved on. A slower consumer, and blocks retained
for reprocessing, hold back writers that a driver passed long ago. So a writer is examined until it
is swept: all consumers are past it and its blocks are deleted. It is listed only when the slowest
consumer has moved.

Each commit records the swept epochs, so a later run, or a new consumer, examines none of them.

A retirement has to be announced before the consumers are read (``retirement``, invariant 4). So
each commit announces the offsets that follow from its own offsets and from the previous read of the
consumers; if another consumer moved meanwhile, the next commit accounts for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.journal.layout import WriterId
from penstock.journal.retention.consumer_files import (
    ConsumerEntry,
    held_offsets,
    read_consumers,
    swept_epochs,
)
from penstock.journal.retention.recent_ends import RecentEnds
from penstock.journal.retention.registration import Consumer
from penstock.journal.retention.retirement import (
    announcement,
    delete_blocks,
    floor_of,
    plan_blocks,
)
from penstock.model import Offsets

_NOTHING_DONE = -1


class Retirer:
    """Commits for one consumer, and retires blocks that no consumer needs. Not thread-safe."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._stream = consumer.stream
        self._seen: Mapping[str, ConsumerEntry] | None = None
        """The consumers, as of the last read."""
        self._floors: dict[WriterId, int | None] = {}
        """Writers that may still have blocks to retire, and the offsets up to which that was
        done."""
        self._swept: dict[str, int] | None = None
        """The epoch of each receiver before which no blocks are left; None before the first
        commit."""

    def commit(
        self,
        offsets: Offsets,
        writers: Iterable[WriterId],
        retained: Offsets | None = None,
        recent: RecentEnds | None = None,
    ) -> None:
        """Record that no batch needs records before ``offsets``; delete what no consumer needs.

        Of ``writers`` and of those that were held back. The first time all writers that are not
        swept are examined: an earlier run may have been killed before it could retire.

        Args:
            offsets: the consumer's committed offsets.
            writers: the writers whose offsets have just changed or been removed.
            retained: from where on its blocks stay to be processed again; None for ``offsets``.
            recent: the ends of its recent batches, if ``retained`` follows from them.

        Raises:
            LogFormatError: a consumer's file is damaged.
            StorageError: a file could not be read, written or deleted; the next call continues.
        """
        name = self._consumer.name
        seen = read_consumers(self._stream) if self._seen is None else self._seen
        if self._swept is None:
            swept = swept_epochs(seen)
            writers = [w for w in self._stream.writers() if w.epoch >= swept.get(w.receiver, 0)]
        else:
            swept = self._swept
        own = ConsumerEntry(offsets, retained=retained)
        floors = self._moved(writers, held_offsets({**seen, name: own}.values()))
        doomed = plan_blocks(self._stream, floors)
        entry = self._consumer.entry(
            offsets, announcement(doomed), retained=retained, swept=swept, recent=recent
        )
        self._seen = None  # until the content of the file is known again
        if seen.get(name) != entry:
            self._consumer.write(entry)
        self._seen = read_consumers(self._stream, {name: entry})
        if name not in self._seen:  # removed by an operator: the next commit registers it again
            return
        held = held_offsets(self._seen.values())
        delete_blocks(self._stream, doomed, held)
        for writer, floor in floors.items():
            self._note(writer, _lower(floor, floor_of(writer, held)))
        self._swept = {**swept, **self._oldest_epochs()}

    def _moved(
        self, writers: Iterable[WriterId], held: Collection[Offsets]
    ) -> dict[WriterId, int | None]:
        """Return the floors that have changed."""
        for writer in writers:
            self._floors.setdefault(writer, _NOTHING_DONE)  # also if this commit fails
        floors = {writer: floor_of(writer, held) for writer in sorted(self._floors)}
        return {writer: floor for writer, floor in floors.items() if floor != self._floors[writer]}

    def _note(self, writer: WriterId, floor: int | None) -> None:
        if floor is None:
            self._floors.pop(writer, None)
        else:
            self._floors[writer] = floor

    def _oldest_epochs(self) -> dict[str, int]:
        """Return the oldest epoch of each receiver that may still have blocks to retire."""
        oldest: dict[str, int] = {}
        for writer in sorted(self._floors, reverse=True):
            oldest[writer.receiver] = writer.epoch
        return oldest


def _lower(one: int | None, other: int | None) -> int | None:
    """Return the lower floor; None is above all."""
    return min((floor for floor in (one, other) if floor is not None), default=None)
