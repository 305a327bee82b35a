"""Keeps a writer within the bounds of its stream, together with the stream's other writers.

Invariants:

1. What a receiver holds and has buffered never exceeds what is usable of its claim, and that never
   what its writer's file says.
2. A claim becomes usable only as far as it fits beside the claims that all other receivers had
   after it was written. Of two that claim at once, at least one sees the other's claim: whoever
   reads second reads after both wrote. So all that is usable is never more than the bound.
3. A claim is lowered only after the writer was held to less.
4. Each epoch has a claim file of its own, so a zombie cannot change its successor's. The successor
   has sealed it before it claims, so what the zombie holds is final; others count a claim until its
   writer is sealed.

Blocks that all have committed and that are only retained give way to what is stored: see
penstock.journal.retention.shortening.

No lock and no clock: a look (at each poll of the supervisor) reads files and writes at most two.
Prior art: Dekker's algorithm; bounded counters by escrow (O'Neil 1986).
"""

from __future__ import annotations

from penstock.errors import JournalFullError
from penstock.journal.bounds.amounts import (
    NOTHING,
    Amount,
    Bounds,
    ceiling,
    is_near,
    is_within,
)
from penstock.journal.bounds.usage import (
    Claim,
    ReceiverUsage,
    StreamUsage,
    remove_claim,
    write_claim,
)
from penstock.journal.retention.shortening import Shortened, shorten_retention
from penstock.journal.writer import JournalWriter

__all__ = ["JournalRoom"]

_SHORTENED_PART = 8


class JournalRoom:
    """One writer's share of its stream's bounds. Not thread-safe.

    Nothing may be stored through the writer before the first ``look``.
    """

    def __init__(self, writer: JournalWriter, bounds: Bounds) -> None:
        self._writer = writer
        self._stream = writer.stream
        self._bounds = bounds
        self._usage = StreamUsage(self._stream, count_records=bounds.max_lag_records is not None)
        self._claim: Amount | None = NOTHING
        """What the file says; None when a write of it failed, which may have taken effect."""
        self._usable = NOTHING
        self.shortened = Shortened()
        """What was deleted so far of the stream's reprocessing period, to go on storing."""

    def look(self) -> JournalFullError | None:
        """See what is held, and let the writer go on as far as it may.

        Returns:
            Why a store waits for a consumer, None when none does.

        Raises:
            StorageError, DamagedBlockError, LogFormatError: it cannot be told how much is held, or
                the claim not written; what was allowed before stays in force.
        """
        if not self._bounds.is_set:
            return None
        account = self._writer.account()  # before the listing: what comes between counts twice
        usage = self._usage.look()
        own = usage.get(self._writer.id.receiver, ReceiverUsage())
        base = own.held - account.published
        taken = account.taken + base
        wanted = None if account.wanted is None else account.wanted + base
        others, open_receivers = self._others(usage)
        target = ceiling(self._bounds.amount, taken, wanted, others, open_receivers)
        waits = wanted is not None and not is_within(wanted, self._usable)
        is_settled = self._claim == self._usable
        if waits or not is_settled or not is_near(self._usable, target, taken):
            self._move(target, base)
        else:
            self._writer.allow(self._usable - base)
        if wanted is None or is_within(wanted, self._usable) or is_within(wanted, target):
            return None
        return None if self._shorten(wanted - target) else self._full(taken + others)

    def leave(self) -> None:
        """Give the room back, after the writer was sealed."""
        if self._bounds.is_set:
            remove_claim(self._stream, self._writer.id)

    def _move(self, target: Amount, base: Amount) -> None:
        """Claim ``target``; use what the others leave of it."""
        if self._claim is None or not is_within(target, self._claim):
            self._write(target.at_least(self._usable))
            others, _ = self._others(self._usage.look())
            target = target.at_most(self._bounds.amount - others).at_least(NOTHING)
        # What the writer has taken it has taken; by invariant 1 that is within what was usable,
        # whatever was counted twice.
        held_to = self._writer.allow(target - base) + base
        self._usable = held_to.at_most(self._usable.at_least(target))
        if self._usable != self._claim:
            self._write(self._usable)

    def _shorten(self, lacking: Amount) -> bool:
        """Delete what is only retained, if bytes are lacking; return whether there was any."""
        if lacking.size_bytes <= 0 or lacking.records > 0:
            return False
        # More than is lacking now, as this lists the whole stream.
        least = max(lacking.size_bytes, self._bounds.amount.size_bytes // _SHORTENED_PART)
        shortened = shorten_retention(self._stream, least)
        self.shortened += shortened
        return shortened.size_bytes > 0

    def _write(self, claim: Amount) -> None:
        self._claim = None
        write_claim(self._stream, self._writer.id, Claim(claim, self._bounds))
        self._claim = claim

    def _others(self, usage: dict[str, ReceiverUsage]) -> tuple[Amount, int]:
        """Return what the other receivers hold or claim, and how many write, with this one."""
        others = [each for name, each in usage.items() if name != self._writer.id.receiver]
        reserved = sum((each.reserved for each in others), NOTHING)
        return reserved, 1 + sum(each.is_open for each in others)

    def _full(self, held: Amount) -> JournalFullError:
        bounds = self._bounds
        reached = [
            f"{held} of {bound} {what}"
            for what, held, bound in (
                ("bytes", held.size_bytes, bounds.max_bytes),
                ("uncommitted records", held.records, bounds.max_lag_records),
            )
            if bound is not None
        ]
        return JournalFullError(
            f"the journal has no room: {' and '.join(reached)} are held or claimed",
            operation="store",
            path=self._stream.storage.uri(self._stream.name),
            ids={"stream": self._stream.name, "writer": str(self._writer.id)},
            hint="see who is behind with `penstock journal ls`; it goes on when that consumer does",
        )
