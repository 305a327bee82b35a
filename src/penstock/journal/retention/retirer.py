"""Commits and retirement from batch to batch, at the cost of one file written for both.

Looks only at writers for which the consumers have moved on. A slower consumer holds back writers
that a driver left behind long ago, so a writer is looked at until nobody needs it any more, and
listed only when the slowest consumer has moved.

What is retired has to be announced before the consumers are looked at (``retirement``, invariant
4). So each commit announces what follows from its own offsets and from what the look before found;
where another consumer moved meanwhile, that shows at the next commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.journal.layout import WriterId
from penstock.journal.retention.consumer_files import consumers
from penstock.journal.retention.registration import Consumer
from penstock.journal.retention.retirement import (
    announcement,
    delete_blocks,
    floor_of,
    plan_blocks,
)
from penstock.model import Offsets

__all__ = ["Retirer"]


class Retirer:
    """Commits for one consumer, and retires what nobody needs then. Not thread-safe."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._stream = consumer.stream
        self._seen: Mapping[str, Offsets] | None = None
        """The consumers, as of the last look."""
        self._floors: dict[WriterId, int | None] = {}
        """Writers that may still have blocks to retire: up to where that was done."""
        self._swept = False

    def commit(self, offsets: Offsets, writers: Iterable[WriterId]) -> None:
        """Record that nothing before ``offsets`` is needed; delete what every consumer is past.

        Of ``writers`` and of those that were held back. The first time all writers are looked at:
        an earlier run may have been killed before it could retire.

        Raises:
            LogFormatError: a consumer's file is damaged.
            StorageError: a file could not be read, written or deleted; the next call goes on.
        """
        name = self._consumer.name
        seen = consumers(self._stream) if self._seen is None else self._seen
        floors = self._moved(writers, {**seen, name: offsets})
        doomed = plan_blocks(self._stream, floors)
        self._consumer.commit(offsets, announcement(doomed))
        self._seen = consumers(self._stream)
        if name not in self._seen:  # removed by an operator: the next commit registers it again
            return
        delete_blocks(self._stream, doomed, self._seen)
        for writer, floor in floors.items():
            self._note(writer, _lower(floor, floor_of(writer, self._seen)))
        self._swept = True

    def _moved(
        self, writers: Iterable[WriterId], committed: Mapping[str, Offsets]
    ) -> dict[WriterId, int | None]:
        """Return the floors that are not where they were."""
        looked_at = {*self._floors, *(writers if self._swept else self._stream.writers())}
        floors = {writer: floor_of(writer, committed) for writer in sorted(looked_at)}
        return {
            writer: floor
            for writer, floor in floors.items()
            if writer not in self._floors or floor != self._floors[writer]
        }

    def _note(self, writer: WriterId, floor: int | None) -> None:
        if floor is None:
            self._floors.pop(writer, None)
        else:
            self._floors[writer] = floor


def _lower(one: int | None, other: int | None) -> int | None:
    """Return the lower floor; None is above all."""
    return min((floor for floor in (one, other) if floor is not None), default=None)
