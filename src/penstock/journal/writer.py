"""The journal's writer: group commit of many stores into few durable blocks.

Invariants:

1. A record is acked only after the publish that holds it returned: bytes and name are durable.
2. Acks run in the order of the stores, and never past a publish that failed: the first failure ends
   this writer for good (a new writer seals it and goes on), and nothing after it is acked.
3. Blocks are published one after the other, so a writer's blocks have no gaps.
4. A name that is taken means a successor sealed this writer: it is fenced.
5. With bounds, what is published and buffered never exceeds what ``allow`` gave; a block that turns
   out larger than was reserved for it waits, like a store, until it fits.
6. At most ``max_buffered_bytes`` of records wait in memory, in at most four groups (being filled,
   encoded, queued, published); a store that finds no room blocks.

Two threads: one closes groups and encodes them, one publishes and acks, so that the next block is
encoded while the last one is being synced. Whatever either of them raises breaks the writer; none
ends with the other left waiting.

Prior art: Spark's BatchedWriteAheadLog and BlockGenerator; group commit as databases do it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.errors import (
    AlreadyExistsError,
    ConfigError,
    JournalError,
    PenstockError,
    WriterBrokenError,
)
from penstock.journal.block import BlockFooter, encode_block
from penstock.journal.bounds.allowance import Account, Allowance
from penstock.journal.bounds.amounts import Amount, Bounds
from penstock.journal.commit_policy import CommitPolicy
from penstock.journal.epochs import claim_writer, publish_seal
from penstock.journal.group import Ack, EncodedGroup, Group, Store
from penstock.journal.layout import WriterId, block_path
from penstock.journal.positions import DeferredPosition, dump_position, load_position
from penstock.journal.stream import JournalStream
from penstock.journal.writer_errors import WriterErrors
from penstock.model import COMPRESSIONS

__all__ = ["JournalWriter"]

_log = logging.getLogger(__name__)
_MAX_BUFFERED_BYTES = 1 << 30
"""Arrow and Parquet count bytes in 32 bits within a chunk or page: no group may come near that."""


class JournalWriter:
    """Writes one epoch of one receiver. Thread-safe. Opening it seals all earlier epochs.

    Args:
        stream: the stream to write to.
        receiver: the receiver's name, unique within the stream.
        policy: bounds of a block.
        compression: ``"none"`` (the default: fastest on a local disk), ``"lz4"``, ``"snappy"`` or
            ``"zstd"``.
        max_buffered_bytes: how much may wait to become durable, at most 1 GiB.
        bounds: what the stream may hold. With bounds nothing is taken before ``allow`` is called;
            see penstock.journal.bounds.room for who does.
        on_failure: called once, from a thread of the writer, when it breaks or is fenced; must not
            block, nor close the writer.

    Raises:
        ConfigError: an argument is wrong.
        StorageError: the epoch could not be claimed or an earlier one not sealed; try again.
        DamagedBlockError: the newest block of an earlier epoch is damaged.
    """

    def __init__(
        self,
        stream: JournalStream,
        receiver: str,
        *,
        policy: CommitPolicy | None = None,
        compression: str = "none",
        max_buffered_bytes: int = 64 << 20,
        bounds: Bounds | None = None,
        on_failure: Callable[[JournalError], None] | None = None,
    ) -> None:
        if compression not in COMPRESSIONS:
            raise ConfigError(
                f"unknown block compression {compression!r}",
                operation="open writer",
                hint=f"use one of {', '.join(COMPRESSIONS)}",
            )
        if not 0 < max_buffered_bytes <= _MAX_BUFFERED_BYTES:
            raise ConfigError(
                f"max_buffered_bytes is {max_buffered_bytes}",
                operation="open writer",
                hint=f"give a number from 1 to {_MAX_BUFFERED_BYTES} (1 GiB)",
            )
        self.stream = stream
        self.id: WriterId
        self.id, position = claim_writer(stream, receiver)
        self._errors = WriterErrors(stream, self.id)
        bounds = bounds or Bounds()
        self._policy = _within(policy or CommitPolicy(), bounds)
        self._max_store_bytes = min(_MAX_BUFFERED_BYTES, bounds.max_store_bytes)
        self._allowance = Allowance(bounds, len(stream.format.arrow))
        self._may_wait = True  # whether a store may wait for room within the bounds
        self._compression = compression
        self._max_buffered = max_buffered_bytes
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # the encoding thread waits here
        self._progress = threading.Condition(self._lock)  # stores and flushes wait here
        self._group = Group()
        self._newest = BlockFooter(0, 0, position)  # the last published block
        # Brought by a store of this writer, durable or not; a deferred one is in its block only.
        self._last_position: str | None = None
        self._accepted = 0  # records taken by append
        self._buffered = 0  # bytes taken and not yet published
        self._in_flight = 0  # groups closed and not yet published
        self._last_publish_s = float("-inf")
        self._closing = False
        self._sealed = False
        self._error: JournalError | None = None
        self._blocks: queue.Queue[EncodedGroup | None] = queue.Queue(maxsize=1)
        self._threads = [
            threading.Thread(target=run, name=f"journal-{role}-{self.id}", daemon=True)
            for role, run in (("encode", self._encode_groups), ("publish", self._publish_blocks))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def end_offset(self) -> int:
        """Offset after the last durable record."""
        with self._lock:
            return self._newest.end_offset

    @property
    def position(self) -> Any:
        """The source's newest durable position, of this epoch or the ones before it."""
        with self._lock:
            return self._newest.position

    @property
    def error(self) -> JournalError | None:
        """Why this writer takes nothing more, None while it works."""
        with self._lock:
            return self._error

    @property
    def max_store_bytes(self) -> int:
        """The largest store that is taken, in bytes of memory."""
        return self._max_store_bytes

    def append(
        self, record: Any, *, position: Any = None, ack: Ack | None = None, wait: bool = True
    ) -> bool:
        """Buffer one record; ``ack`` is called once it is durable.

        Args:
            record: what the stream's schema says.
            position: any JSON value, or a DeferredPosition: where the source stands after this
                record; becomes durable in the same file.
            ack: called from a thread of the writer, in the order of the stores; must not block, nor
                close the writer.
            wait: whether to wait for room.

        Returns:
            Whether it was taken: True unless there is no room, and ``wait`` is False.

        Raises:
            ConfigError: the record does not fit the schema, or the position is no JSON value.
            JournalFullError: within the bounds there is no room, and none is to be waited for.
            FencedError, WriterBrokenError: nothing of this call will become durable through this
                writer, or be acked.
        """
        item, size = self.stream.format.check_one(record)
        return self._store(Store([item], 1, size, dump_position(position), ack), wait)

    def append_all(
        self,
        records: Iterable[Any] | pa.RecordBatch | pa.Table,
        *,
        position: Any = None,
        ack: Ack | None = None,
        wait: bool = True,
    ) -> bool:
        """Buffer records that become durable together, in one block; see ``append``.

        Without any record, the ack waits for its turn all the same, and the position goes into the
        next block, or the seal; a DeferredPosition needs records.
        """
        record_format = self.stream.format
        if isinstance(records, pa.RecordBatch | pa.Table):
            batches = record_format.conform(records)
        else:
            batches = [record_format.encode_many(records)]
        batches = [batch for batch in batches if batch.num_rows]
        count = sum(batch.num_rows for batch in batches)
        size = sum(batch.nbytes for batch in batches)
        if not count and isinstance(position, DeferredPosition):
            raise ConfigError(
                "a store without records cannot have a deferred position",
                operation="append",
                ids=self._ids(),
                hint="store nothing, or give the position as a JSON value",
            )
        return self._store(Store(batches, count, size, dump_position(position), ack), wait)

    def flush(self) -> None:
        """Block until all that was appended before is durable.

        Raises:
            FencedError, WriterBrokenError: it will not become durable through this writer.
        """
        with self._lock:
            wanted = self._accepted
            self._hurry()
            while self._newest.end_offset < wanted:
                self._check_healthy("flush")
                self._progress.wait()

    def close(self) -> None:
        """Publish what is buffered, then the seal. Closing again does nothing.

        Raises:
            FencedError, WriterBrokenError: not all of it became durable through this writer, or
                the seal did not (which the next writer makes up for).
        """
        if self._sealed:
            return
        self._end_threads()
        with self._lock:
            self._check_healthy("close")
        self._seal()
        self._sealed = True

    def abandon(self) -> None:
        """Stop as a killed process would: publish no more, and no seal. Does nothing once closed.

        What is being published at this moment may still become durable, and be acked.
        """
        if self._sealed:
            return
        self._set_error(
            WriterBrokenError("the writer was abandoned", operation="abandon", ids=self._ids())
        )
        self._end_threads()

    # -- the bounds --

    def allow(self, limit: Amount) -> Amount:
        """Let so much in all be stored through this writer, counted from its start.

        Returns:
            The limit in force: not below what is stored already.
        """
        with self._lock:
            in_force = self._allowance.limit_to(limit)
            self._progress.notify_all()
            return in_force

    def account(self) -> Account:
        """Return what was stored so far, and what waits for room."""
        with self._lock:
            return self._allowance.account()

    def let_wait(self, may_wait: bool) -> None:
        """Whether stores may wait for room within the bounds, or raise JournalFullError."""
        with self._lock:
            self._may_wait = may_wait
            self._progress.notify_all()

    # -- taking records --

    def _store(self, store: Store, wait: bool) -> bool:
        if store.size_bytes > self._max_store_bytes:
            raise ConfigError(
                f"a store of {store.size_bytes} bytes is too large",
                operation="append",
                ids=self._ids(),
                hint=f"divide it into stores of less than {self._max_store_bytes} bytes"
                + ("" if self._max_store_bytes == _MAX_BUFFERED_BYTES else ", or raise the bound"),
            )
        with self._lock:
            self._check_open()
            while not self._has_room(store):
                self._hurry()
                if not wait:
                    return False
                self._wait_for_room(store)
            group = self._group
            was_idle, had_waiter = group.is_idle, group.has_waiter
            group.add(store)
            if self._allowance.is_bounded:
                group.reserved += self._allowance.take(store)
            self._accepted += store.count
            self._buffered += store.size_bytes
            if store.position is not None:
                position = store.position
                self._last_position = position if isinstance(position, str) else None
            # Each of these brings the time forward at which the encoding thread is to act.
            if was_idle or had_waiter < group.has_waiter or self._is_full():
                self._work.notify()
            return True

    def _has_room(self, store: Store) -> bool:
        size = self._buffered + store.size_bytes
        if self._is_full() or (self._buffered and size > self._max_buffered):
            return False
        return not self._allowance.is_bounded or self._allowance.has_room(store)

    def _wait_for_room(self, store: Store) -> None:
        if not (self._may_wait or self._allowance.has_room(store)):
            raise self._errors.no_room("append")
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
            raise WriterBrokenError("the writer is closed", operation="append", ids=self._ids())

    def _check_healthy(self, operation: str) -> None:
        if (error := self._error) is not None:
            raise type(error)(
                error.message,
                operation=operation,
                path=error.path,
                ids=self._ids(),
                hint=error.hint,
            ) from error

    # -- the encoding thread --

    def _encode_groups(self) -> None:
        newest = self._newest
        while (group := self._next_group()) is not None:
            try:
                position = self._position_of(group, newest)
                newest = BlockFooter(newest.end_offset, group.count, position)
                self._blocks.put(EncodedGroup(group, newest, self._encode(group, newest)))
            except Exception as e:
                self._fail(self._errors.broken("encode block", e))
        self._blocks.put(None)

    def _position_of(self, group: Group, before: BlockFooter) -> Any:
        """Return the position of the block that follows ``before``."""
        at = before.end_offset
        for deferred, start, end in group.deferred:
            deferred.place(str(self.id), at + start, at + end)
        if isinstance(group.position, DeferredPosition):
            value = group.position.value()
            return before.position if value is None else value
        return load_position(group.position, before.position)

    def _encode(self, group: Group, footer: BlockFooter) -> pa.Buffer | None:
        if not group.count:
            return None  # acks of empty stores, which only wait for their turn
        table = self.stream.format.encode(group.items)
        return encode_block(table, footer, compression=self._compression)

    def _next_group(self) -> Group | None:
        """Wait for a group that is due, and take it; None when there will be none any more."""
        with self._lock:
            while self._error is None:
                due_s = self._due_s()
                now_s = time.monotonic()
                if due_s is not None and due_s <= now_s:
                    group, self._group = self._group, Group()
                    self._in_flight += 1
                    self._progress.notify_all()  # there is room in the new group
                    return group
                if self._closing and self._group.is_idle:
                    return None
                self._work.wait(None if due_s is None else due_s - now_s)
            return None

    def _due_s(self) -> float | None:
        if self._group.is_idle:
            return None
        if self._closing:
            return float("-inf")
        return self._policy.due_s(
            self._group.facts(), self._last_publish_s, publishing=self._in_flight > 0
        )

    # -- the publishing thread --

    def _publish_blocks(self) -> None:
        while (block := self._blocks.get()) is not None:
            if self.error is None and self._publish(block):
                for ack in block.group.acks:
                    self._call(ack)

    def _publish(self, block: EncodedGroup) -> bool:
        """Make a block durable; return whether it is."""
        path = block_path(self.stream.name, self.id, block.footer.start_offset)
        try:
            if block.data is not None:
                with self._lock:
                    self._await_allowance(block.data.size)
                    self._last_publish_s = time.monotonic()
                self.stream.storage.create(path, block.data)
        except AlreadyExistsError as e:
            self._fail(self._errors.fenced(path, e))
            return False
        except JournalError as e:
            self._fail(e)
            return False
        except Exception as e:
            self._fail(self._errors.broken("publish block", e, path))
            return False
        with self._lock:
            if block.data is not None:
                self._newest = block.footer
                self._allowance.settle(block.group.reserved, block.data.size)
            self._buffered -= block.group.size_bytes
            self._in_flight -= 1
            self._progress.notify_all()
            self._work.notify()
        return True

    def _await_allowance(self, size_bytes: int) -> None:
        while not self._allowance.fits(size_bytes):
            if not self._may_wait:
                raise self._errors.no_room("publish block")
            self._progress.wait()
            self._check_healthy("publish block")

    def _call(self, ack: Ack) -> None:
        try:
            ack()
        except BaseException:
            # The records are durable; a source that could not be told sends them again. Nothing
            # that the source's code raises may end this thread, for which others wait.
            _log.exception("An ack of writer %s of stream %s failed", self.id, self.stream.name)

    # -- ends --

    def _end_threads(self) -> None:
        with self._lock:
            self._closing = True
            self._work.notify()
        for thread in self._threads:
            thread.join()

    def _seal(self) -> None:
        # All records are durable by now, and with them every position that any store brought.
        position = load_position(self._last_position, self._newest.position)
        try:
            publish_seal(self.stream, self.id, replace(self._newest, position=position))
        except AlreadyExistsError:
            return  # a successor sealed this writer, after all that it published
        except PenstockError as e:
            raise self._errors.broken("seal writer", e) from e

    def _fail(self, error: JournalError) -> None:
        """End this writer for good, from one of its threads."""
        if self._set_error(error) and self._on_failure is not None:
            try:
                self._on_failure(error)
            except Exception:
                _log.exception("on_failure of writer %s failed", self.id)

    def _set_error(self, error: JournalError) -> bool:
        """Let nothing more in, or be published; return False when it had failed before."""
        with self._lock:
            if self._error is not None:
                return False
            self._error = error
            self._group = Group()  # what was buffered is the source's again
            self._progress.notify_all()
            self._work.notify()
            return True

    def _ids(self) -> dict[str, str]:
        return self._errors.ids


def _within(policy: CommitPolicy, bounds: Bounds) -> CommitPolicy:
    """Return the policy with blocks small enough for the bounds."""
    return replace(policy, max_block_bytes=min(policy.max_block_bytes, bounds.max_block_bytes))
