"""The way of a store into the journal: counted, charged to the rate limit, appended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sized

import pyarrow as pa

from penstock.clock import Clock, SystemClock
from penstock.journal import JournalWriter
from penstock.rate import RateLimiter
from penstock.receivers.control import Command
from penstock.receivers.receiver import Position, Records

Ack = Callable[[], None]

_LONGEST_ABSENCE_MS = 30_000
_SINGLE_RECORDS = (str, bytes, bytearray, memoryview, dict, tuple)
_TABLES = (pa.RecordBatch, pa.Table)


class Intake:
    """Takes what a receiver stores, from any of its threads.

    Args:
        block_interval_ms: what the rate limit evens out to.
        poll_ms: how often the journal is checked for free space.
        clock: what time it is.
    """

    def __init__(self, block_interval_ms: int, poll_ms: int, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._limiter = RateLimiter(None, block_interval_ms, clock=self._clock)
        self._poll_ms = poll_ms
        self._full_since_ms: int | None = None
        self.refused = 0
        """The records that ``try_store`` sent back; about, where several threads store."""
        self.stopped = threading.Event()
        """Set while the receiver must not receive: then the rate does not delay it either."""
        self.stopped.set()

    def limit(self, command: Command) -> None:
        """Apply a command's rate and pause."""
        if command.rate != self._limiter.rate:
            self._limiter.set_rate(command.rate)
        self._limiter.set_paused(command.paused)

    def store(
        self, writer: JournalWriter, records: Records, position: Position, ack: Ack | None
    ) -> None:
        """Wait until the limit and the journal's bounds allow the records; see Receiver.store."""
        if isinstance(records, pa.RecordBatch | pa.Table) and position is None:
            for part, is_last in self._parts(records, writer.max_store_bytes):
                self._charge(part.num_rows)
                writer.append_all(part, ack=ack if is_last else None)
            return
        taken, count = _counted(records)
        self._charge(count)
        _append(writer, taken, position, ack)

    def try_store(
        self, writer: JournalWriter, records: Records, position: Position, ack: Ack | None
    ) -> int:
        """Store records if that needs no wait; see Receiver.tryStore."""
        taken, count = _counted(records)
        wait_ms = 0 if self.stopped.is_set() else self._limiter.try_acquire(count)
        if wait_ms:
            self.refused += count
            return wait_ms
        if _append(writer, taken, position, ack, wait=False):
            self._full_since_ms = None
            return 0
        self._limiter.give_back(count)
        self.refused += count
        return self._until_room_ms()

    def _until_room_ms(self) -> int:
        """Estimate when a consumer frees space: the same time again as there has been none."""
        now_ms = self._clock.monotonic_ms()
        since_ms = self._full_since_ms
        if since_ms is None:
            self._full_since_ms = since_ms = now_ms
        return min(max(now_ms - since_ms, self._poll_ms), _LONGEST_ABSENCE_MS)

    def _charge(self, count: int) -> None:
        """Wait until the limit allows the records, or the receiver is stopped.

        Then they are stored nevertheless: a source without positions or acks could not resend them.
        """
        self._limiter.acquire(count, self.stopped)

    def _parts(
        self, records: pa.RecordBatch | pa.Table, max_store_bytes: int
    ) -> Iterator[tuple[pa.RecordBatch | pa.Table, bool]]:
        """Yield parts that fit a block interval and the bounds, and whether each is the last."""
        start, total = 0, records.num_rows
        most = _rows_within(records, max_store_bytes)
        while True:
            burst = None if self.stopped.is_set() else self._limiter.burst()
            end = min(start + most, total if burst is None else start + burst, total)
            yield records.slice(start, end - start), end == total
            if end == total:
                return
            start = end


def _rows_within(records: pa.RecordBatch | pa.Table, max_store_bytes: int) -> int:
    """Return how many rows of about equal size make a store that is surely small enough."""
    parts = 1 if records.nbytes <= max_store_bytes else 1 + 2 * records.nbytes // max_store_bytes
    return max(1, -(-int(records.num_rows) // parts))


def _counted(records: Records) -> tuple[Records, int]:
    """Return records, and how many they are; what can be iterated once only is read for it."""
    if isinstance(records, _TABLES):
        return records, records.num_rows
    if _is_single(records):
        return records, 1
    several = records if isinstance(records, Sized) else list(records)
    return several, len(several)


def _append(
    writer: JournalWriter,
    records: Records,
    position: Position,
    ack: Ack | None,
    *,
    wait: bool = True,
) -> bool:
    if _is_single(records):
        return writer.append(records, position=position, ack=ack, wait=wait)
    if not writer.append_all(records, position=position, ack=ack, wait=wait):
        return False
    if ack is None and not isinstance(records, _TABLES):
        writer.flush()
    return True


def _is_single(records: Records) -> bool:
    if isinstance(records, _TABLES):
        return False
    return isinstance(records, _SINGLE_RECORDS) or not isinstance(records, Iterable)
