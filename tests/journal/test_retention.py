"""Retention: a block goes when every consumer is past it, and never the fence."""

from __future__ import annotations

import pytest

from penstock.errors import FencedError, LogFormatError, MissingBlockError, StorageError
from penstock.journal import (
    JournalStream,
    JournalWriter,
    RecordFormat,
    StreamProgress,
    advance,
    commit_consumer,
    consumers,
    read_records,
    remove_consumer,
    retire,
)
from penstock.journal.layout import WriterId
from penstock.model import OffsetRange
from penstock.storage import Storage
from penstock.testing import FaultyStorage
from tests.journal.helpers import PATIENT, memory_stream, read_all, write_blocks

BLOCKS = [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]  # at 0, 2, 3, 6


def starts(stream: JournalStream, writer: WriterId) -> list[int]:
    return [block.start_offset for block in stream.blocks(writer)]


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize(
    ("committed", "left"),
    [(0, [0, 2, 3, 6]), (1, [0, 2, 3, 6]), (2, [2, 3, 6]), (5, [3, 6]), (6, [6]), (7, [6])],
)
def test_blocks_before_the_committed_offset_go(
    committed: int, left: list[int], sealed: bool
) -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=sealed)
    commit_consumer(stream, "job", {str(writer): committed})
    if sealed:
        left = [7] if committed == 7 else [*left, 7]
    assert retire(stream) == (5 if sealed else 4) - len(left)
    assert starts(stream, writer) == left
    assert retire(stream) == 0


def test_the_slowest_consumer_holds_blocks_back() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    commit_consumer(stream, "fast", {str(writer): 7})
    commit_consumer(stream, "slow", {str(writer): 3})
    commit_consumer(stream, "new", {})
    assert retire(stream) == 0
    commit_consumer(stream, "new", {str(writer): 6})
    assert retire(stream) == 2
    assert list(read_records(stream, [OffsetRange(str(writer), 3, 7)])) == list("defg")
    remove_consumer(stream, "slow")
    remove_consumer(stream, "slow")
    assert retire(stream) == 1
    assert starts(stream, writer) == [6, 7]


def test_without_consumers_nothing_goes() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    assert retire(stream) == 0
    assert starts(stream, writer) == [0, 2, 3, 6, 7]


def test_a_writer_that_is_finished_for_all_keeps_its_seal_alone() -> None:
    stream = memory_stream()
    first = write_blocks(stream, BLOCKS)
    second = write_blocks(stream, [["h"]], close=False)
    commit_consumer(stream, "a", {str(second): 1})
    commit_consumer(stream, "b", {str(first): 7, str(second): 0})
    assert retire(stream) == 4
    assert starts(stream, first) == [7]
    assert starts(stream, second) == [0]


def test_retirement_can_be_narrowed_to_the_writers_at_work() -> None:
    stream = memory_stream()
    first, second = (write_blocks(stream, BLOCKS, receiver=name) for name in "ab")
    commit_consumer(stream, "job", {str(first): 7, str(second): 7})
    assert retire(stream, [second]) == 4
    assert starts(stream, first) == [0, 2, 3, 6, 7]


def test_the_fence_outlives_retention() -> None:
    stream = memory_stream()
    zombie = JournalWriter(stream, "r0", policy=PATIENT)
    zombie.append("a", position=1)
    zombie.flush()
    successor = JournalWriter(stream, "r0", policy=PATIENT)
    commit_consumer(stream, "job", {str(successor.id): 0})
    retire(stream)
    zombie.append("b", position=2)
    with pytest.raises(FencedError):
        zombie.flush()
    zombie.abandon()
    successor.abandon()
    assert JournalWriter(stream, "r0").position == 1


def test_an_open_writers_end_outlives_retention() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=False)
    commit_consumer(stream, "job", {str(writer): 7})
    retire(stream)
    offsets = advance({str(writer): 7}, StreamProgress(stream).ends({str(writer): 7}))
    assert offsets == {str(writer): 7}


def test_reading_what_was_retired_fails() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    commit_consumer(stream, "job", {str(writer): 3})
    retire(stream)
    with pytest.raises(MissingBlockError, match="begins at 3"):
        list(read_records(stream, [OffsetRange(str(writer), 2, 7)]))


def test_a_crash_between_two_deletions_leaves_a_readable_rest(storage: Storage) -> None:
    faulty = FaultyStorage(storage)
    stream = JournalStream.create(faulty, "lines", RecordFormat("string"))
    writer = write_blocks(stream, BLOCKS)
    commit_consumer(stream, "job", {str(writer): 6})
    faulty.fail("delete", nth=2)
    with pytest.raises(StorageError):
        retire(stream)
    assert starts(stream, writer) == [2, 3, 6, 7]
    assert list(read_records(stream, [OffsetRange(str(writer), 2, 7)])) == list("cdefg")
    assert retire(stream) == 2


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"offsets": 7}', b'{"offsets": {"w": "x"}}']
)
def test_a_damaged_consumer_file_stops_retirement(damage: bytes) -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    commit_consumer(stream, "fast", {str(writer): 7})
    stream.storage.create("s/consumers/slow.json", damage)
    with pytest.raises(LogFormatError) as caught:
        retire(stream)
    assert caught.value.ids["consumer"] == "slow"
    assert len(read_all(stream)) == 7


def test_consumers_are_read_back() -> None:
    stream = memory_stream()
    assert consumers(stream) == {}
    commit_consumer(stream, "a.b", {"r0-00000000": 3})
    commit_consumer(stream, "c", {})
    stream.storage.create("s/consumers/notes.txt", b"not a consumer")
    assert consumers(stream) == {"a.b": {"r0-00000000": 3}, "c": {}}


@pytest.mark.parametrize("name", ["c (copy).json", "c.json.bak", ".json", "notes.txt"])
def test_files_of_others_beside_the_consumers_files_register_nobody(name: str) -> None:
    stream = memory_stream()
    writer = write_blocks(stream, [["a"], ["b"]])
    stream.storage.create(f"s/consumers/{name}", b'{"offsets":{}}')
    assert consumers(stream) == {}
    commit_consumer(stream, "c", {str(writer): 1})
    assert retire(stream) == 1
