"""What the journal's tests share: writing blocks of chosen sizes, reading everything back."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock.journal import (
    CommitPolicy,
    JournalStream,
    JournalWriter,
    RecordFormat,
    StreamProgress,
    advance,
    commit_consumer,
    ranges_between,
    read_records,
    retire,
)
from penstock.journal.layout import WriterId, block_path
from penstock.model import OffsetRange, Offsets
from penstock.storage import Storage, open_storage
from tests.waiting import WAIT_S

PATIENT = CommitPolicy(block_interval_ms=600_000)
"""Publishes only for a waiter, a full group or a close, so a test decides what shares a block."""


def memory_stream(schema: Any = "string") -> JournalStream:
    """A stream of its own in memory, for tests that make many."""
    storage = open_storage(f"memory://journal-{threading.get_ident()}-{next(_numbers)}")
    return JournalStream.create(storage, "s", RecordFormat(schema))


def append_unchecked(writer: JournalWriter, table: pa.Table) -> None:
    """Store values that Python does not have, as a writer that is not penstock's may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordFormat, "_check_readable", lambda self, table: None)
        writer.append_all(table)


def clear_memory() -> None:
    """Drop all files in memory, which would make every listing slower."""
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def write_blocks(
    stream: JournalStream,
    blocks: Iterable[Sequence[Any]],
    *,
    receiver: str = "r0",
    close: bool = True,
    compression: str = "none",
) -> WriterId:
    """Write one block for each sequence of records."""
    writer = JournalWriter(stream, receiver, policy=PATIENT, compression=compression)
    for records in blocks:
        writer.append_all(records)
        writer.flush()
    (writer.close if close else writer.abandon)()
    return writer.id


def whole_range(stream: JournalStream, writer: WriterId | str) -> OffsetRange:
    """Return the range of all durable records of a writer."""
    newest = stream.newest(writer)
    return OffsetRange(str(writer), 0, newest.end_offset if newest else 0)


def read_all(stream: JournalStream) -> list[Any]:
    """Return all durable records, by writer and offset, as a first batch takes them."""
    return read_after(stream, {})[0]


def read_after(stream: JournalStream, begin: Offsets) -> tuple[list[Any], Offsets]:
    """Return the durable records from some offsets on, as a next batch takes them, and its end."""
    end = advance(begin, StreamProgress(stream).ends(begin))
    return list(read_records(stream, ranges_between(begin, end))), end


class PlainConsumer:
    """Reads a stream from its beginning; commits what it read, and retires it."""

    def __init__(self, stream: JournalStream) -> None:
        self._stream = stream
        self._end: Offsets = {}

    def take(self) -> list[Any]:
        """Return what is new."""
        found, self._end = read_after(self._stream, self._end)
        commit_consumer(self._stream, "job", self._end)
        retire(self._stream)
        return found


def path_of(stream: JournalStream, writer: WriterId, start: int) -> str:
    """Return the path of a block in the stream's storage."""
    return block_path(stream.name, writer, start)


def rewrite(storage: Storage, path: str, data: bytes) -> None:
    """Put other bytes in a file's place, as damage does."""
    storage.create(path, data, overwrite=True)


@contextmanager
def abandoned_when_stuck(writer: JournalWriter) -> Iterator[None]:
    """Abandon a writer that keeps its caller too long, so that the call raises."""
    timer = threading.Timer(WAIT_S, writer.abandon)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class Acks:
    """Collects acks in the order they come."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self._changed = threading.Condition()

    def of(self, token: Any) -> Any:
        """Return an ack that notes ``token``."""

        def ack() -> None:
            with self._changed:
                self.received.append(token)
                self._changed.notify_all()

        return ack

    def wait_for(self, count: int) -> None:
        """Wait until ``count`` acks came."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, WAIT_S), (
                f"{len(self.received)} of {count} acks came"
            )


_numbers = itertools.count()
