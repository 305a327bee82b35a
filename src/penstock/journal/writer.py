"""The journal's writer: group commit of many stores into few durable blocks.

Invariants:

1. A record is acked only after the publish that holds it returned: bytes and name are durable.
2. Acks run in the order of the stores, and never past a publish that failed: the first failure ends
   this writer for good (a new writer seals it and goes on), and nothing after it is acked.
3. Blocks are published one after the other, so a writer's blocks have no gaps.
4. A name that is taken means a successor sealed this writer: it is fenced.
5. At most ``max_buffered_bytes`` wait in memory; a store that finds no room blocks.

Two threads: one closes groups and encodes them, one publishes and acks, so that the next block is
encoded while the last one is being synced.

Prior art: Spark's BatchedWriteAheadLog and BlockGenerator; group commit as databases do it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from penstock.errors import (
    AlreadyExistsError,
    ConfigError,
    FencedError,
    JournalError,
    PenstockError,
    WriterBrokenError,
)
from penstock.journal.block import BlockFooter, encode_block
from penstock.journal.commit_policy import CommitPolicy
from penstock.journal.epochs import claim_writer, publish_seal
from penstock.journal.group import Ack, EncodedGroup, Group
from penstock.journal.layout import WriterId, block_path
from penstock.journal.stream import JournalStream

__all__ = ["JournalWriter"]

_log = logging.getLogger(__name__)
_COMPRESSIONS = ("none", "lz4", "snappy", "zstd")


class JournalWriter:
    """Writes one epoch of one receiver. Thread-safe. Opening it seals all earlier epochs.

    Args:
        stream: the stream to write to.
        receiver: the receiver's name, unique within the stream.
        policy: bounds of a block.
        compression: ``"none"`` (the default: fastest on a local disk), ``"lz4"``, ``"snappy"`` or
            ``"zstd"``.
        max_buffered_bytes: how much may wait to become durable.
        on_failure: called once, from a writer thread, when the writer breaks or is fenced.
    """

    def __init__(
        self,
        stream: JournalStream,
        receiver: str,
        *,
        policy: CommitPolicy | None = None,
        compression: str = "none",
        max_buffered_bytes: int = 64 << 20,
        on_failure: Callable[[JournalError], None] | None = None,
    ) -> None:
        if compression not in _COMPRESSIONS:
            raise ConfigError(
                f"unknown block compression {compression!r}",
                operation="open writer",
                hint=f"use one of {', '.join(_COMPRESSIONS)}",
            )
        self.stream = stream
        self.id: WriterId
        self.id, position = claim_writer(stream, receiver)
        self._policy = policy or CommitPolicy()
        self._compression = compression
        self._max_buffered = max_buffered_bytes
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # the encoding thread waits here
        self._progress = threading.Condition(self._lock)  # stores and flushes wait here
        self._group = Group()
        self._newest = BlockFooter(0, 0, position)
        self._accepted = 0  # records taken by append
        self._durable = 0  # records published: the writer's end offset
        self._buffered = 0  # bytes taken and not yet published
        self._in_flight = 0  # groups closed and not yet published
        self._last_publish_s = float("-inf")
        self._closing = False
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
            return self._durable

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

    def append(self, record: Any, *, position: Any = None, ack: Ack | None = None) -> None:
        """Buffer one record; ``ack`` is called once it is durable.

        Raises:
            ConfigError: the record does not fit the schema.
            FencedError, WriterBrokenError: nothing of this call will become durable through this
                writer, or be acked.
        """
        item, size = self.stream.format.check_one(record)
        with self._lock:
            self._reserve(size)
            if isinstance(item, pa.RecordBatch):
                self._group.add_batch(item)
            else:
                self._group.add_value(item, size)
            self._taken(1, size, position, ack)

    def append_all(
        self,
        records: Iterable[Any] | pa.RecordBatch | pa.Table,
        *,
        position: Any = None,
        ack: Ack | None = None,
    ) -> None:
        """Buffer records that become durable together, in one block. Raises as ``append`` does."""
        record_format = self.stream.format
        if isinstance(records, pa.RecordBatch | pa.Table):
            batches = record_format.conform(records)
        else:
            batches = [record_format.encode_many(records)]
        count = sum(batch.num_rows for batch in batches)
        size = sum(batch.nbytes for batch in batches)
        with self._lock:
            self._reserve(size)
            for batch in batches:
                self._group.add_batch(batch)
            self._taken(count, size, position, ack)

    def flush(self) -> None:
        """Block until all that was appended before is durable.

        Raises:
            FencedError, WriterBrokenError: it will not become durable through this writer.
        """
        with self._lock:
            wanted = self._accepted
            if self._group.count:
                self._group.note_waiter()
                self._work.notify()
            while self._durable < wanted:
                self._check_healthy()
                self._progress.wait()

    def close(self) -> None:
        """Publish what is buffered, then the seal. Closing again does nothing.

        Raises:
            FencedError, WriterBrokenError: not all of it became durable through this writer.
        """
        with self._lock:
            if self._closing:
                return
        self._end_threads()
        self._check_healthy()
        try:
            publish_seal(self.stream, self.id, self._newest)
        except AlreadyExistsError as e:
            if not self.stream.footer(self.id, self._newest.end_offset).sealed:
                raise self._fenced(str(e.path), e) from e

    def abandon(self) -> None:
        """Stop as a killed process would: publish no more, and no seal. Does nothing when closed."""
        with self._lock:
            if self._closing:
                return
        self._fail(
            WriterBrokenError("the writer was abandoned", operation="abandon", ids=self._ids())
        )
        self._end_threads()

    # -- taking records (the caller holds the lock) --

    def _reserve(self, size: int) -> None:
        self._check_open()
        while self._buffered and self._buffered + size > self._max_buffered:
            self._progress.wait()
            self._check_open()

    def _taken(self, count: int, size: int, position: Any, ack: Ack | None) -> None:
        group = self._group
        first_waiter = ack is not None and not group.has_waiter
        if position is not None:
            group.position = position
        if ack is not None:
            group.acks.append(ack)
            group.note_waiter()
        self._accepted += count
        self._buffered += size
        if group.count == count or first_waiter or self._policy.is_full(group.facts()):
            self._work.notify()

    def _check_open(self) -> None:
        self._check_healthy()
        if self._closing:
            raise WriterBrokenError("the writer is closed", operation="append", ids=self._ids())

    def _check_healthy(self) -> None:
        if (error := self._error) is not None:
            raise type(error)(
                error.message, operation="append", ids=self._ids(), hint=error.hint
            ) from error

    # -- the encoding thread --

    def _encode_groups(self) -> None:
        newest = self._newest
        while (group := self._next_group()) is not None:
            try:
                position = newest.position if group.position is None else group.position
                newest = BlockFooter(newest.end_offset, group.count, position)
                self._blocks.put(EncodedGroup(group, newest, self._encode(group, newest)))
            except (pa.ArrowException, TypeError, ValueError, MemoryError) as e:
                self._fail(self._broken("encode block", e))
        self._blocks.put(None)

    def _encode(self, group: Group, footer: BlockFooter) -> pa.Buffer | None:
        if not group.count:
            return None  # acks of empty stores, which only wait for their turn
        table = self.stream.format.encode(group.items)
        return encode_block(table, footer, compression=self._compression)

    def _next_group(self) -> Group | None:
        with self._lock:
            while self._error is None:
                timeout_s = None
                if not self._group.is_idle:
                    now_s = time.monotonic()
                    due_s = self._policy.due_s(
                        self._group.facts(), self._last_publish_s, publishing=self._in_flight > 0
                    )
                    if self._closing or (due_s is not None and due_s <= now_s):
                        group, self._group = self._group, Group()
                        self._in_flight += 1
                        return group
                    timeout_s = None if due_s is None else due_s - now_s
                elif self._closing:
                    return None
                self._work.wait(timeout_s)
            return None

    # -- the publishing thread --

    def _publish_blocks(self) -> None:
        while (block := self._blocks.get()) is not None:
            if self.error is None and self._publish(block):
                for ack in block.group.acks:
                    self._call(ack)

    def _publish(self, block: EncodedGroup) -> bool:
        path = block_path(self.stream.name, self.id, block.footer.start_offset)
        self._last_publish_s = time.monotonic()
        try:
            if block.data is not None:
                self.stream.storage.create(path, block.data)
        except AlreadyExistsError as e:
            self._fail(self._fenced(path, e))
            return False
        except PenstockError as e:
            self._fail(self._broken("publish block", e, path))
            return False
        with self._lock:
            self._newest = block.footer
            self._durable = block.footer.end_offset
            self._buffered -= block.group.size_bytes
            self._in_flight -= 1
            self._progress.notify_all()
            self._work.notify()
        return True

    def _call(self, ack: Ack) -> None:
        try:
            ack()
        except Exception:
            # The records are durable; a source that could not be told sends them again.
            _log.exception("An ack of writer %s of stream %s failed", self.id, self.stream.name)

    # -- ends --

    def _end_threads(self) -> None:
        with self._lock:
            self._closing = True
            self._work.notify()
        for thread in self._threads:
            thread.join()

    def _fail(self, error: JournalError) -> None:
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            self._group = Group()  # what was buffered is the source's again
            self._progress.notify_all()
            self._work.notify()
        if self._on_failure is not None:
            self._on_failure(error)

    def _fenced(self, path: str, cause: AlreadyExistsError) -> FencedError:
        error = FencedError(
            "a successor sealed this writer",
            operation="publish block",
            path=self.stream.storage.uri(path),
            ids=self._ids(),
            hint="another attempt of this receiver runs; nothing unacked was lost, stop this one",
        )
        error.__cause__ = cause
        return error

    def _broken(
        self, operation: str, cause: BaseException, path: str | None = None
    ) -> WriterBrokenError:
        error = WriterBrokenError(
            "the writer broke; what it had not acked is for the source to send again",
            operation=operation,
            path=path and self.stream.storage.uri(path),
            ids=self._ids(),
            hint="open a new writer, which seals this one and goes on",
        )
        error.__cause__ = cause
        return error

    def _ids(self) -> dict[str, str]:
        return {"stream": self.stream.name, "writer": str(self.id)}
