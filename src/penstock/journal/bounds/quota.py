"""Keeps a writer within what its receiver may hold.

Each receiver has bounds of its own: an ingest process those that it was given, a receiver of a
program its equal part of the stream's. No two receivers negotiate.

Invariants:

1. What a receiver holds, in all of its epochs, and has buffered never exceeds its bounds, less what
   the receivers ``beside`` it hold beyond theirs. The earlier epochs are sealed before its writer
   opens, so what they hold only shrinks.
2. What is held beyond bounds is from before the run: a run with fewer or more receivers, or other
   bounds. Before a run's first receiver starts, every writer of earlier runs is sealed, and no
   receiver takes more while it is above. So what is beyond only shrinks, an old measurement of it
   errs to the safe side, and one that is within its bounds needs no further look.
3. So receivers that are beside each other never come to hold more than their bounds together, or
   than they held when the run began, if that is more.

Blocks that all have committed and that are only retained give way to what is stored: see
penstock.journal.retention.shortening.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import JournalFullError
from penstock.journal.bounds.amounts import NOTHING, Amount, Bounds, is_within
from penstock.journal.bounds.usage import StreamUsage
from penstock.journal.retention.consumer_files import consumers
from penstock.journal.retention.shortening import Shortened, shorten_retention
from penstock.journal.writer import JournalWriter

__all__ = ["WriterQuota"]

_SHORTENED_PART = 8


class WriterQuota:
    """Holds one writer to its receiver's bounds. Not thread-safe.

    Nothing may be stored through the writer before the first ``refresh``.

    Args:
        writer: of the receiver.
        bounds: of the receiver.
        beside: the other receivers among which a stream's bounds are divided, or were, and how much
            each may hold.
    """

    def __init__(
        self, writer: JournalWriter, bounds: Bounds, beside: Mapping[str, Amount] | None = None
    ) -> None:
        self._writer = writer
        self._stream = writer.stream
        self._bounds = bounds
        self._beside = dict(beside or {})
        self._usage = StreamUsage(self._stream, count_records=bounds.max_lag_records is not None)
        self.shortened = Shortened()
        """What was deleted so far of the stream's reprocessing period, to store more."""

    def refresh(self) -> JournalFullError | None:
        """Measure what is held, and let the writer store as much as it may.

        Returns:
            Why a store waits for a consumer, None when none does.

        Raises:
            StorageError, DamagedBlockError, LogFormatError: it cannot be told how much is held;
                the limit before remains effective.
        """
        if not self._bounds.is_set:
            return None
        used = self._writer.usage()  # before the listing: what comes between counts twice
        own = self._writer.id.receiver
        held = self._usage.measure({own, *self._beside})
        beyond = self._beyond(held)
        limit = self._bounds.amount - beyond
        before = held[own] - used.published
        self._writer.allow(limit - before)
        if used.wanted is None or is_within(used.wanted + before, limit):
            return None
        lacking = used.wanted + before - limit
        return None if self._shorten(lacking) else self._full(held[own], beyond)

    def _beyond(self, held: Mapping[str, Amount]) -> Amount:
        """Return what receivers beside this one hold beyond their bounds; forget the others."""
        beyond = {
            name: (held[name] - bound).at_least(NOTHING) for name, bound in self._beside.items()
        }
        self._beside = {name: self._beside[name] for name in beyond if beyond[name] != NOTHING}
        return sum(beyond.values(), NOTHING)

    def _shorten(self, lacking: Amount) -> bool:
        """Delete what is only retained, if bytes are lacking; return whether there was any."""
        if lacking.size_bytes <= 0 or lacking.records > 0:
            return False
        # More than is lacking now, as this lists all writers.
        least = max(lacking.size_bytes, self._bounds.amount.size_bytes // _SHORTENED_PART)
        receivers = {self._writer.id.receiver, *self._beside}
        shortened = shorten_retention(self._stream, least, receivers)
        self.shortened += shortened
        return shortened.size_bytes > 0

    def _full(self, own: Amount, beyond: Amount) -> JournalFullError:
        bounds, limit = self._bounds, self._bounds.amount - beyond
        reached = [
            f"{held} of {limit} {what}"
            for what, held, limit, bound in (
                ("bytes", own.size_bytes, limit.size_bytes, bounds.max_bytes),
                ("uncommitted records", own.records, limit.records, bounds.max_lag_records),
            )
            if bound is not None
        ]
        others = f"; {', '.join(sorted(self._beside))} still hold the rest" if self._beside else ""
        return JournalFullError(
            f"the journal has no room: the receiver holds {' and '.join(reached)}{others}",
            operation="store",
            path=self._stream.storage.uri(self._stream.name),
            ids={"stream": self._stream.name, "writer": str(self._writer.id)},
            hint="see which consumer is behind with `penstock journal ls`; storing continues when "
            "it has committed"
            if consumers(self._stream)
            else "no consumer is registered: start a program that reads the stream; storing "
            "continues when it has committed",
        )
