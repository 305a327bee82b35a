"""What a writer has taken and not yet published: the monitor in which its threads meet.

Invariants:

1. Groups leave in the order in which their stores were taken, one open group at a time.
2. At most ``max_buffered_bytes`` of records, or one larger store, wait in memory, in at most four
   groups (being filled, encoded, queued, published); further stores wait.
3. With bounds, what is published and buffered never exceeds what ``allow`` gave; a block that turns
   out larger than was reserved for it waits, like a store, until it fits.
4. The first failure is final: nothing is taken or handed out after it, and every thread that
   waits here wakes and gets the error.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from penstock.errors import ConfigError, JournalError
from penstock.journal.bounds.amounts import Amount, Bounds
from penstock.journal.bounds.writer_usage import UsageCounts, WriterUsage
from penstock.journal.store import Store
from penstock.journal.writer.commit_policy import CommitPolicy
from penstock.journal.writer.errors import WriterErrors
from penstock.journal.writer.group import Group

MAX_BUFFERED_BYTES = 1 << 30
"""Arrow and Parquet count bytes in 32 bits within a chunk or page: no group may come near that."""


class StoreBuffer:
    """The stores of one writer on their way to the publish. Thread-safe.

    Args:
        policy: when a group is closed.
        max_buffered_bytes: how much may wait to become durable.
        bounds: what the receiver may hold.
        columns: of the stream's schema; each has a cost in every block.
        errors: makes the writer's errors.
    """

    def __init__(
        self,
        policy: CommitPolicy,
        max_buffered_bytes: int,
        bounds: Bounds,
        columns: int,
        errors: WriterErrors,
    ) -> None:
        self.max_store_bytes = min(MAX_BUFFERED_BYTES, bounds.max_store_bytes)
        self._policy = _within(policy, bounds)
        self._max_buffered = max_buffered_bytes
        self._usage = WriterUsage(bounds, columns)
        self._errors = errors
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # the encoding thread waits here
        self._progress = threading.Condition(self._lock)  # stores, flushes and publishes wait here
        self._group = Group()
        self._taken = 0  # records, since the writer's start
        self._published = 0  # of these
        self._buffered = 0  # bytes taken and not yet published
        self._in_flight = 0  # groups closed and not yet published
        self._last_position: str | None = None
        self._last_publish_s = float("-inf")
        self._may_wait = True  # whether a store may wait for the bounds
        self._closing = False
        self._error: JournalError | None = None

    @property
    def error(self) -> JournalError | None:
        """Why nothing more is taken, None while all is well."""
        with self._lock:
            return self._error

    @property
    def counts(self) -> tuple[int, int]:
        """The records that were taken, and those of them that are published."""
        with self._lock:
            return self._taken, self._published

    @property
    def last_position(self) -> str | None:
        """The position of the last store that brought one; a deferred one is in its block only."""
        with self._lock:
            return self._last_position

    # -- stores --

    def put(self, store: Store, *, wait: bool) -> bool:
        """Take a store; return whether it was taken, which only fails without ``wait``.

        Raises:
            ConfigError: it is larger than any store may be.
            JournalFullError: a bound is reached, and the store must not wait.
            FencedError, WriterBrokenError: the writer has failed, or is closed.
        """
        if store.size_bytes + store.position_bytes > self.max_store_bytes:
            raise self._too_large(store)
        with self._lock:
            self._check_open()
            while not self._may_take(store):
                self._hurry()
                if not wait:
                    return False
                self._wait_to_take(store)
            self._take(store)
            return True

    def flush(self) -> None:
        """Wait until all that was taken before is published.

        Raises:
            FencedError, WriterBrokenError: it will not be.
        """
        with self._lock:
            wanted = self._taken
            self._hurry()
            while self._published < wanted:
                self._check_healthy("flush")
                self._progress.wait()

    def check_healthy(self, operation: str) -> None:
        """Raise the error that ended the writer, as one of this operation."""
        with self._lock:
            self._check_healthy(operation)

    def _take(self, store: Store) -> None:
        group = self._group
        was_idle, had_waiter = group.is_idle, group.has_waiter
        group.add(store)
        if self._usage.is_bounded:
            group.reserved += self._usage.take(store)
        self._taken += store.count
        self._buffered += store.size_bytes
        if store.position is not None:
            self._last_position = store.position if isinstance(store.position, str) else None
        # Each of these brings the time forward at which the encoding thread is to act.
        if was_idle or had_waiter < group.has_waiter or self._is_full():
            self._work.notify()

    def _may_take(self, store: Store) -> bool:
        size = self._buffered + store.size_bytes
        if self._is_full() or (self._buffered and size > self._max_buffered):
            return False
        return self._usage.may_take(store)

    def _wait_to_take(self, store: Store) -> None:
        if not (self._may_wait or self._usage.may_take(store)):
            raise self._errors.journal_full("append")
        self._progress.wait()
        self._check_open()

    def _is_full(self) -> bool:
        return self._policy.is_full(self._group.count, self._group.size_bytes)

    def _hurry(self) -> None:
        """Have the group published without waiting for the block interval."""
        if self._group.count and not self._group.has_waiter:
            self._group.note_waiter()
            self._work.notify()

    def _check_open(self) -> None:
        self._check_healthy("append")
        if self._closing:
            raise self._errors.closed("append")

    def _check_healthy(self, operation: str) -> None:
        if self._error is not None:
            raise self._errors.again(self._error, operation)

    def _too_large(self, store: Store) -> ConfigError:
        is_own_bound = self.max_store_bytes < MAX_BUFFERED_BYTES
        return ConfigError(
            f"a store of {store.size_bytes + store.position_bytes} bytes is too large",
            operation="append",
            ids=self._errors.ids,
            hint=f"divide it into stores of less than {self.max_store_bytes} bytes"
            + (", or raise the bound" if is_own_bound else ""),
        )

    # -- groups --

    def next_group(self) -> Group | None:
        """Wait for a group that is due, and take it; None when there will be none any more."""
        with self._lock:
            while self._error is None:
                due_s = self._due_s()
                now_s = time.monotonic()
                if due_s is not None and due_s <= now_s:
                    group, self._group = self._group, Group()
                    self._in_flight += 1
                    self._progress.notify_all()  # the new group accepts stores
                    return group
                if self._closing and self._group.is_idle:
                    return None
                self._work.wait(None if due_s is None else due_s - now_s)
            return None

    def begin_publish(self, size_bytes: int) -> None:
        """Wait until a block of that many bytes fits within the bounds; it is published next.

        Raises:
            JournalFullError: it does not fit, and is not to wait, or never will.
            FencedError, WriterBrokenError: the writer failed meanwhile.
        """
        with self._lock:
            while not self._usage.fits(size_bytes):
                if not (self._may_wait and self._usage.can_fit(size_bytes)):
                    raise self._errors.journal_full("publish block")
                self._progress.wait()
                self._check_healthy("publish block")
            self._last_publish_s = time.monotonic()

    def end_publish(self, group: Group, size_bytes: int) -> None:
        """Note that a group is durable, in a block of that size; 0 when it had no records."""
        with self._lock:
            self._published += group.count
            self._usage.settle(group.reserved, size_bytes)
            self._buffered -= group.size_bytes
            self._in_flight -= 1
            self._progress.notify_all()
            self._work.notify()

    def _due_s(self) -> float | None:
        if self._group.is_idle:
            return None
        if self._closing:
            return float("-inf")
        return self._policy.due_s(
            self._group.facts(), self._last_publish_s, publishing=self._in_flight > 0
        )

    # -- ends --

    def close(self) -> None:
        """Take nothing more; what is here is due at once."""
        with self._lock:
            self._closing = True
            self._work.notify()
            self._progress.notify_all()  # of stores that wait, none is taken any more

    def fail(self, error: JournalError) -> bool:
        """Take and hand out nothing more; return False when it had failed before."""
        with self._lock:
            if self._error is not None:
                return False
            self._error = error
            self._group = Group()  # what was buffered is the source's again
            self._progress.notify_all()
            self._work.notify()
            return True

    # -- the bounds --

    def allow(self, limit: Amount) -> Amount:
        """See JournalWriter.allow."""
        with self._lock:
            effective = self._usage.limit_to(limit)
            self._progress.notify_all()
            return effective

    def usage(self) -> UsageCounts:
        """See JournalWriter.usage."""
        with self._lock:
            return self._usage.counts()

    def set_blocking(self, may_wait: bool) -> None:
        """See JournalWriter.set_blocking."""
        with self._lock:
            self._may_wait = may_wait
            self._progress.notify_all()


def _within(policy: CommitPolicy, bounds: Bounds) -> CommitPolicy:
    """Return the policy with blocks small enough for the bounds."""
    return replace(policy, max_block_bytes=min(policy.max_block_bytes, bounds.max_block_bytes))
