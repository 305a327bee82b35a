"""The two threads behind a writer: one encodes groups, one publishes them and acks.

So the next block is encoded while the last one is being synced. Invariants:

1. A record is acked only after the publish that holds it returned: bytes and name are durable.
2. Acks run in the order of the stores, and never past a publish that failed: the first failure ends
   the writer for good, and nothing after it is published or acked.
3. Blocks are published one after the other, so a writer's blocks have no gaps.
4. A name that a seal has means a successor sealed this writer: it is fenced. A block there is this
   writer's own, of a create whose answer was lost: it is broken, and the next one finds the block.
5. Whatever either thread raises breaks the writer; none ends with the other left waiting.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.errors import AlreadyExistsError, JournalError
from penstock.journal.block import BlockFooter, encode_block
from penstock.journal.layout import WriterId, block_path
from penstock.journal.positions import load_position
from penstock.journal.store import Ack
from penstock.journal.stream import JournalStream
from penstock.journal.writer.buffer import StoreBuffer
from penstock.journal.writer.errors import WriterErrors
from penstock.journal.writer.group import EncodedGroup, Group

_log = logging.getLogger(__name__)


class Publisher:
    """Makes the groups of a buffer durable, from its construction on.

    Args:
        stream: where to publish.
        writer: in whose name.
        buffer: where groups come from.
        newest: what the first block follows: no records, and the position of the epoch before.
        compression: of the blocks.
        errors: makes the writer's errors.
        on_failure: called once, from one of the threads, when the first of them fails.
    """

    def __init__(
        self,
        stream: JournalStream,
        writer: WriterId,
        buffer: StoreBuffer,
        *,
        newest: BlockFooter,
        compression: str,
        errors: WriterErrors,
        on_failure: Callable[[JournalError], None] | None,
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._buffer = buffer
        self._newest = newest
        self.publish_ms: float | None = None  # how long the newest block took to become durable
        self._compression = compression
        self._errors = errors
        self._on_failure = on_failure
        self._blocks: queue.Queue[EncodedGroup | None] = queue.Queue(maxsize=1)
        self._threads = [
            threading.Thread(target=run, name=f"journal-{role}-{writer}", daemon=True)
            for role, run in (("encode", self._encode_groups), ("publish", self._publish_blocks))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def newest(self) -> BlockFooter:
        """The last published block. Set by one thread, before the buffer hears of the publish."""
        return self._newest

    def join(self) -> None:
        """Wait for the threads to end: until all is published, once the buffer takes no more."""
        for thread in self._threads:
            thread.join()

    # -- the encoding thread --

    def _encode_groups(self) -> None:
        newest = self._newest
        while (group := self._buffer.next_group()) is not None:
            try:
                position = self._position_of(group, newest)
                newest = BlockFooter(newest.end_offset, group.count, position)
                self._blocks.put(EncodedGroup(group, newest, self._encode(group, newest)))
            except BaseException as e:  # positions are the receiver's code, which may even exit
                self._fail(self._errors.broken("encode block", e))
        self._blocks.put(None)

    def _position_of(self, group: Group, before: BlockFooter) -> Any:
        """Return the position of the block that follows ``before``."""
        at = before.end_offset
        for deferred, start, end in group.deferred:
            deferred.place(str(self._writer), at + start, at + end)
        if group.last_deferred is not None and (value := group.last_deferred.value()) is not None:
            return value
        return load_position(group.position, before.position)

    def _encode(self, group: Group, footer: BlockFooter) -> pa.Buffer | None:
        if not group.count:
            return None  # acks of empty stores, which only wait for their turn
        table = self._stream.format.encode(group.items)
        return encode_block(table, footer, compression=self._compression)

    # -- the publishing thread --

    def _publish_blocks(self) -> None:
        while (block := self._blocks.get()) is not None:
            if self._buffer.error is None and self._publish(block):
                for ack in block.group.acks:
                    self._call(ack)

    def _publish(self, block: EncodedGroup) -> bool:
        """Make a group durable; return whether it is."""
        if block.data is None:
            self._buffer.end_publish(block.group, 0)
            return True
        path = block_path(self._stream.name, self._writer, block.footer.start_offset)
        try:
            self._buffer.begin_publish(block.data.size)
            began_s = time.monotonic()
            self._stream.storage.create(path, block.data)
            self.publish_ms = 1000 * (time.monotonic() - began_s)
        except AlreadyExistsError as e:
            self._fail(self._errors.taken(path, block.footer, e))
            return False
        except JournalError as e:
            self._fail(e)
            return False
        except BaseException as e:  # a panic of the store's client, say
            self._fail(self._errors.broken("publish block", e, path))
            return False
        self._newest = block.footer
        self._buffer.end_publish(block.group, block.data.size)
        return True

    def _call(self, ack: Ack) -> None:
        try:
            ack()
        except BaseException:
            # The records are durable; a source that could not be told sends them again. Nothing
            # that the source's code raises may end this thread, for which others wait.
            _log.exception(
                "An ack of writer %s of stream %s failed", self._writer, self._stream.name
            )

    # -- both --

    def _fail(self, error: JournalError) -> None:
        """End the writer for good."""
        if self._buffer.fail(error) and self._on_failure is not None:
            try:
                self._on_failure(error)
            except BaseException:
                _log.exception("on_failure of writer %s failed", self._writer)
