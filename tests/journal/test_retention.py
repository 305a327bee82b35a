"""Retention: a block goes when every consumer is past it, and never the fence."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Collection, Sequence
from contextlib import nullcontext

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
    ranges_between,
    read_records,
    register_consumer,
    remove_consumer,
    retire,
    verify_stream,
)
from penstock.journal.layout import WriterId
from penstock.journal.retention.retirer import Retirer
from penstock.model import OffsetRange
from penstock.storage import Storage
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from tests.journal.helpers import (
    PATIENT,
    memory_stream,
    path_of,
    read_after,
    read_all,
    write_blocks,
)
from tests.storage.faulty_storage import FaultyStorage

BLOCKS = [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]  # at 0, 2, 3, 6


def read_on(stream: JournalStream, consumer: str) -> list[str]:
    """Return what a consumer has yet to read."""
    return read_after(stream, consumers(stream)[consumer])[0]


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


class LeavesSome(FaultyStorage):
    """A store of which a deletion of many is cut off when all but these are gone."""

    left: Collection[str] = ()

    def delete_all(self, paths: Sequence[str]) -> None:
        super().delete_all([path for path in paths if path not in self.left])
        if self.left:
            raise StorageError("cut off")


@pytest.mark.parametrize("left", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("by", ["a program", "a program, removed", "a tool"])
def test_whatever_a_retirement_leaves_is_readable_sound_and_deleted_by_the_next(
    left: tuple[bool, ...], by: str
) -> None:
    storage = LeavesSome(memory_stream().storage)
    stream = JournalStream.create(storage, "lines", RecordFormat("string"))
    writer = write_blocks(stream, BLOCKS)
    program = register_consumer(stream, "program", "p")
    commit_consumer(stream, "plain", {str(writer): 6})
    stay = list(itertools.compress((0, 2, 3), left))
    storage.left = [path_of(stream, writer, start) for start in stay]
    with pytest.raises(StorageError) if any(left) else nullcontext():
        if by == "a tool":
            program.commit({str(writer): 6})
            retire(stream)
        else:
            Retirer(program).commit({str(writer): 6}, [writer])
    storage.left = ()
    assert starts(stream, writer) == [*stay, 6, 7]
    if by == "a program, removed":
        remove_consumer(stream, "program")
        program = register_consumer(stream, "program", "p")

    assert not [verdict for verdict in verify_stream(stream) if verdict.error]
    assert read_on(stream, "plain") == list("g")
    new = register_consumer(stream, "new", "n").begin
    read = list(read_records(stream, ranges_between(new, {str(writer): 7})))
    assert read == list("abcdefg")[new[str(writer)] :]
    remove_consumer(stream, "new")

    if by == "a tool":
        retire(stream)
    else:
        Retirer(program).commit({str(writer): 6}, [writer])
    assert starts(stream, writer) == [6, 7]


@pytest.mark.parametrize("hole", [[0], [2], [3], [0, 3], [2, 3], [0, 2]])
def test_a_new_consumer_begins_behind_holes_that_all_others_are_past(hole: list[int]) -> None:
    """Also where nothing is announced any more."""
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    commit_consumer(stream, "job", {str(writer): 6})
    for start in hole:
        stream.storage.delete(path_of(stream, writer, start))
    assert not [verdict for verdict in verify_stream(stream) if verdict.error]
    begin = register_consumer(stream, "new", "n").begin
    assert begin == {str(writer): {0: 2, 2: 3, 3: 6}[hole[-1]]}
    read = list(read_records(stream, ranges_between(begin, {str(writer): 7})))
    assert read == list("abcdefg")[begin[str(writer)] :]


def test_a_hole_that_a_consumer_has_yet_to_read_is_damage_for_a_new_one_too() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    commit_consumer(stream, "job", {str(writer): 2})
    stream.storage.delete(path_of(stream, writer, 3))
    begin = register_consumer(stream, "new", "n").begin
    assert begin == {str(writer): 0}
    with pytest.raises(MissingBlockError, match=r"\[3, 6\) are not in the journal"):
        list(read_records(stream, ranges_between(begin, {str(writer): 7})))
    (hole,) = [verdict for verdict in verify_stream(stream) if verdict.error]
    assert hole.unreadable == OffsetRange(str(writer), 3, 6)


class KeepsOneBlock(Syscalls):
    """Cannot unlink the block at 2."""

    def unlink(self, path: str) -> None:
        if path.endswith(f"{2:020d}.parquet"):
            raise OSError(errno.EIO, "cut off")
        super().unlink(path)


def test_local_files_are_deleted_in_order(storage: Storage) -> None:
    """So a kill between two deletions leaves no hole there."""
    stream = JournalStream.create(storage, "lines", RecordFormat("string"))
    writer = write_blocks(stream, BLOCKS)
    commit_consumer(stream, "job", {str(writer): 6})
    broken = LocalStorage(storage.url.removeprefix("file://"), syscalls=KeepsOneBlock())
    with pytest.raises(StorageError):
        retire(JournalStream(broken, "lines", stream.format))
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
