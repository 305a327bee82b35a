"""Positions that are made with their block, and stores that do not wait."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, WriterBrokenError
from penstock.journal import (
    CommitPolicy,
    DeferredPosition,
    JournalStream,
    JournalWriter,
    RecordFormat,
)
from penstock.storage import open_storage
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import WAIT_S

AT_ONCE = CommitPolicy(spacing_ms=0)


class Noted(DeferredPosition):
    """Notes where stores landed; the position is all of that."""

    def __init__(self, notes: list[Any], answer: Any = ...) -> None:
        self.notes = notes
        self.answer = answer

    def place(self, writer: str, start_offset: int, end_offset: int) -> None:
        self.notes.append([writer, start_offset, end_offset])

    def value(self) -> Any:
        return list(self.notes) if self.answer is ... else self.answer


@pytest.fixture
def storage(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(tmp_path))


@pytest.fixture
def stream(storage: FaultyStorage) -> JournalStream:
    return JournalStream.create(storage, "clicks", RecordFormat("string"))


class Exits(Noted):
    """A receiver's code that ends the thread in which it runs."""

    def value(self) -> Any:
        raise SystemExit


def test_a_position_that_exits_breaks_the_writer(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=AT_ONCE)
    with suppress(WriterBrokenError):  # it may be broken before the store returns
        writer.append("a", position=Exits([]))
    with pytest.raises(WriterBrokenError):
        writer.flush()
    writer.abandon()


def test_a_block_holds_where_all_of_its_stores_are(stream: JournalStream) -> None:
    notes: list[Any] = []
    writer = JournalWriter(stream, "r0", policy=AT_ONCE)
    writer.append_all(["a", "b"], position=Noted(notes))
    writer.append("c")
    writer.append("d", position=Noted(notes))
    writer.append_all(["e", "f", "g"], position=Noted(notes))
    writer.flush()
    expected = [["r0-00000000", 0, 2], ["r0-00000000", 3, 4], ["r0-00000000", 4, 7]]
    assert writer.position == notes == expected
    writer.append("h", position=Noted(notes))
    writer.flush()
    assert writer.position == [*expected, ["r0-00000000", 7, 8]]
    writer.close()
    successor = JournalWriter(stream, "r0")
    assert successor.position == notes, "the seal holds it"
    successor.close()


def test_none_leaves_the_position_before_in_force(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=AT_ONCE)
    writer.append("a", position=7)
    writer.flush()
    writer.append("b", position=Noted([], answer=None))
    writer.flush()
    assert writer.position == 7
    writer.append("c", position=Noted([], answer={"x": 1}))
    writer.close()
    assert writer.position == {"x": 1}


def test_none_leaves_the_position_of_a_store_in_the_same_block(stream: JournalStream) -> None:
    one_block = CommitPolicy(block_interval_ms=600_000)
    writer = JournalWriter(stream, "r0", policy=one_block)
    writer.append("a", position=7)
    writer.append("b", position=Noted([], answer=None))
    writer.flush()
    assert writer.position == 7
    writer.close()


def test_the_last_of_plain_and_deferred_positions_counts(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=AT_ONCE)
    writer.append("a", position=Noted([]))
    writer.append("b", position="plain")
    writer.flush()
    assert writer.position == "plain"
    writer.close()


def test_a_deferred_position_needs_records(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0")
    with pytest.raises(ConfigError, match="without records"):
        writer.append_all([], position=Noted([]))
    writer.close()


def test_an_ack_finds_its_store_placed(stream: JournalStream) -> None:
    found: list[Any] = []
    writer = JournalWriter(stream, "r0", policy=AT_ONCE)
    for number in range(5):
        notes: list[Any] = []
        writer.append(str(number), position=Noted(notes), ack=lambda n=notes: found.extend(n))
    writer.close()
    assert [place[1:] for place in found] == [[n, n + 1] for n in range(5)]


def test_a_store_that_does_not_wait_is_refused_while_there_is_no_room(
    storage: FaultyStorage, stream: JournalStream
) -> None:
    go = threading.Event()

    def block(operation: Operation) -> None:
        if operation.path.endswith(".parquet"):
            assert go.wait(WAIT_S)

    notes: list[Any] = []
    writer = JournalWriter(stream, "r0", policy=AT_ONCE, max_buffered_bytes=1000)
    storage.before = block
    assert writer.append("x" * 900, wait=False)
    assert not writer.append("y" * 900, position=Noted(notes), wait=False)
    assert not writer.append_all(["y" * 900], position=Noted(notes), wait=False)
    storage.before = None
    go.set()
    writer.flush()
    assert writer.append("z" * 900, wait=False)
    writer.close()
    assert (writer.end_offset, notes) == (2, [])
