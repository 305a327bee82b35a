"""The public writer: opens an epoch, checks stored data, and seals the epoch at its end.

Invariants:

1. Opening seals all earlier epochs of the receiver: their records are final, none is lost.
2. Records become durable in the order of the stores; see ``publisher`` for the order of acks, and
   ``buffer`` for the limit on waiting stores.
3. After a failure nothing more becomes durable through this writer: a new one seals it and
   continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.errors import AlreadyExistsError, ConfigError, JournalError, PenstockError
from penstock.journal.block import BlockFooter
from penstock.journal.bounds.amounts import Amount, Bounds
from penstock.journal.bounds.writer_usage import UsageCounts
from penstock.journal.epochs import claim_writer, publish_seal
from penstock.journal.layout import WriterId
from penstock.journal.positions import DeferredPosition, dump_position, load_position
from penstock.journal.store import Ack, Store
from penstock.journal.stream import JournalStream
from penstock.journal.writer.buffer import MAX_BUFFERED_BYTES, StoreBuffer
from penstock.journal.writer.commit_policy import CommitPolicy
from penstock.journal.writer.errors import WriterErrors
from penstock.journal.writer.publisher import Publisher
from penstock.model import COMPRESSIONS


class JournalWriter:
    """Writes one epoch of one receiver. Thread-safe. Opening it seals all earlier epochs.

    Args:
        stream: the stream to write to.
        receiver: the receiver's name, unique within the stream.
        policy: bounds of a block.
        compression: ``"none"`` (the default: fastest on a local disk), ``"lz4"``, ``"snappy"`` or
            ``"zstd"``.
        max_buffered_bytes: how much may wait to become durable, at most 1 GiB.
        bounds: what the receiver may hold. With bounds nothing is taken before ``allow`` is called;
            see penstock.journal.bounds.quota for who does.
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
        if not 0 < max_buffered_bytes <= MAX_BUFFERED_BYTES:
            raise ConfigError(
                f"max_buffered_bytes is {max_buffered_bytes}",
                operation="open writer",
                hint=f"give a number from 1 to {MAX_BUFFERED_BYTES} (1 GiB)",
            )
        self.stream = stream
        self.id: WriterId
        self.id, position = claim_writer(stream, receiver)
        self._errors = WriterErrors(stream, self.id)
        self._buffer = StoreBuffer(
            policy or CommitPolicy(),
            max_buffered_bytes,
            bounds or Bounds(),
            len(stream.format.arrow),
            self._errors,
        )
        self._publisher = Publisher(
            stream,
            self.id,
            self._buffer,
            newest=BlockFooter(0, 0, position),
            compression=compression,
            errors=self._errors,
            on_failure=on_failure,
        )
        self._sealed = False

    @property
    def end_offset(self) -> int:
        """Offset after the last durable record."""
        return self._publisher.newest.end_offset

    @property
    def position(self) -> Any:
        """The source's newest durable position, of this epoch or the ones before it."""
        return self._publisher.newest.position

    @property
    def counts(self) -> tuple[int, int]:
        """The records that were stored through this writer, and those that are durable."""
        return self._buffer.counts

    @property
    def publish_ms(self) -> float | None:
        """How long the newest block took to become durable, None before the first."""
        return self._publisher.publish_ms

    @property
    def error(self) -> JournalError | None:
        """The error that ended this writer, None while it works."""
        return self._buffer.error

    @property
    def max_store_bytes(self) -> int:
        """The largest store that is taken, in bytes of memory."""
        return self._buffer.max_store_bytes

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
            wait: whether to wait for the bounds.

        Returns:
            Whether it was stored: True unless a bound is reached and ``wait`` is False.

        Raises:
            ConfigError: the record does not fit the schema, or the position is not a JSON value.
            JournalFullError: a bound is reached, and the store must not wait.
            FencedError, WriterBrokenError: nothing of this call will become durable through this
                writer, or be acked.
        """
        item, size = self.stream.format.check_one(record)
        return self._buffer.put(Store([item], 1, size, dump_position(position), ack), wait=wait)

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
                ids=self._errors.ids,
                hint="add records, or pass the position as a JSON value",
            )
        return self._buffer.put(
            Store(batches, count, size, dump_position(position), ack), wait=wait
        )

    def flush(self) -> None:
        """Block until all that was appended before is durable.

        Raises:
            FencedError, WriterBrokenError: it will not become durable through this writer.
        """
        self._buffer.flush()

    def close(self) -> None:
        """Publish what is buffered, then the seal. Closing again does nothing.

        Raises:
            FencedError, WriterBrokenError: not all of it became durable through this writer, or
                the seal did not (which the next writer makes up for).
        """
        if self._sealed:
            return
        self._end_threads()
        self._buffer.check_healthy("close")
        self._seal()
        self._sealed = True

    def abandon(self) -> None:
        """Stop as a killed process would: publish no more, and no seal. Does nothing once closed.

        What is being published at this moment may still become durable, and be acked.
        """
        if self._sealed:
            return
        self._buffer.fail(self._errors.abandoned())
        self._end_threads()

    # -- the bounds --

    def allow(self, limit: Amount) -> Amount:
        """Set how much in all may be stored through this writer, counted from its start.

        Returns:
            The effective limit: not below the amount stored already.
        """
        return self._buffer.allow(limit)

    def usage(self) -> UsageCounts:
        """Return the amounts stored so far, and waiting for the bounds."""
        return self._buffer.usage()

    def set_blocking(self, may_wait: bool) -> None:
        """Set whether stores may wait for the bounds, or raise JournalFullError."""
        self._buffer.set_blocking(may_wait)

    # -- ends --

    def _end_threads(self) -> None:
        self._buffer.close()
        self._publisher.join()

    def _seal(self) -> None:
        # All records are durable by now, and with them every position that any store brought.
        newest = self._publisher.newest
        position = load_position(self._buffer.last_position, newest.position)
        try:
            publish_seal(self.stream, self.id, replace(newest, position=position))
        except AlreadyExistsError:
            return  # a successor sealed this writer, after all that it published
        except PenstockError as e:
            raise self._errors.broken("seal writer", e) from e
