"""What a batch costs on an object store: the requests of its journal input.

Counted are the operations of the storage, from the planning of a batch to its release; each is one
request of S3 (tests/storage/test_s3.py).

    idle            lists the stream, its open writer, the consumers
    5 new blocks    the same, and: reads 5 footers, lists the writer to retire, replaces the
                    consumer's file, deletes the retired blocks at once
    with losses     lists them, once
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from penstock.errors import MissingBlockError
from penstock.journal import (
    JournalStream,
    JournalWriter,
    RecordFormat,
    StreamProgress,
    ranges_between,
)
from penstock.journal.layout import block_path
from penstock.journal.losses.loss_log import Loss, create_loss
from penstock.journal.reader import read_slices, readable_ranges, slice_footer, slice_ranges
from penstock.journal.retention.registration import register_consumer
from penstock.journal.source import JournalSource
from penstock.model import OffsetRange, Offsets
from tests.journal.helpers import memory_stream, rewrite, write_blocks
from tests.storage.faulty_storage import FaultyStorage

IDLE = {"list": 3}
FIVE_BLOCKS = {"list": 4, "read": 5, "create": 1, "delete": 1}


class Program:
    """What a program with one journal input does to its journal, batch by batch."""

    def __init__(self) -> None:
        self._storage = FaultyStorage(memory_stream().storage)
        self.stream = JournalStream.create(self._storage, "numbers", RecordFormat("string"))
        self._source = JournalSource(register_consumer(self.stream, "program", "me"))
        self.at: Offsets = self._source.begin

    def batch(self) -> Counter[str]:
        """Plan, read and release a batch; return its requests."""
        self._storage.operations.clear()
        source, begin, end = self._source, self.at, self._source.latest(self.at)
        ranges = ranges_between(begin, end)
        source.count([])  # what the rate manager leaves waiting
        source.count(ranges)  # what the listeners are told
        for part in slice_ranges(self.stream, ranges, source.scan):  # as for a DataFrame
            slice_footer(self.stream, part, source.scan)
        source.commit(begin, end, begin)
        self.at = end
        return Counter(done.kind for done in self._storage.operations)


@pytest.mark.parametrize("epochs", [1, 30])
@pytest.mark.parametrize("record", ["a", "a" * 20_000], ids=["small", "large"])
def test_a_batch_costs_few_requests_however_many_epochs_there_were(
    epochs: int, record: str
) -> None:
    program = Program()
    for _ in range(epochs - 1):
        JournalWriter(program.stream, "r0").close()
    with closing(JournalWriter(program.stream, "r0")) as writer:
        for blocks in (1, 1, 0, 0):
            publish(writer, record, blocks)
            program.batch()
        idle = program.batch()
        publish(writer, record, 5)
        program.batch()
        publish(writer, record, 5)
        busy = program.batch()
        program.batch()
        program.batch()
        idle_again = program.batch()
    assert (idle, busy, idle_again) == (IDLE, FIVE_BLOCKS, IDLE)


def test_losses_are_listed_once_a_batch() -> None:
    program = Program()
    with closing(JournalWriter(program.stream, "r0")) as writer:
        publish(writer, "a", 1)
        program.batch()
        lost = OffsetRange(str(writer.id), 1, 2)
        create_loss(program.stream.storage, "numbers", Loss(lost, "test", "me", "here", "now"))
        for _ in range(3):
            program.batch()
        assert program.batch() == IDLE | {"list": IDLE["list"] + 1}


def test_a_removed_registration_is_made_again_though_nothing_moves() -> None:
    program = Program()
    with closing(JournalWriter(program.stream, "r0")) as writer:
        publish(writer, "a", 1)
        for _ in range(3):
            program.batch()
        path = "numbers/consumers/program.json"
        program.stream.storage.delete(path)
        program.batch()
        program.batch()
        assert program.stream.storage.exists(path)


def test_what_is_not_in_the_scan_is_listed() -> None:
    """A scan of before the range, as of a batch that is made again, does not hide its blocks."""
    program = Program()
    progress = StreamProgress(program.stream)
    with closing(JournalWriter(program.stream, "r0")) as writer:
        publish(writer, "a", 1)
        progress.ends({})
        publish(writer, "a", 2)
        wanted = OffsetRange(str(writer.id), 0, 3)
        slices = slice_ranges(program.stream, [wanted], progress.scan)
    assert [(s.start_offset, s.end_offset) for s in slices] == [(0, 1), (1, 2), (2, 3)]


def test_what_is_given_up_is_left_out_from_the_next_scan_on() -> None:
    program = Program()
    progress = StreamProgress(program.stream)
    with closing(JournalWriter(program.stream, "r0")) as writer:
        publish(writer, "a", 3)
        progress.ends({})
        wanted = OffsetRange(str(writer.id), 0, 3)
        lost = OffsetRange(str(writer.id), 1, 2)
        create_loss(program.stream.storage, "numbers", Loss(lost, "test", "me", "here", "now"))
        before = readable_ranges(program.stream, [wanted], progress.scan)
        progress.ends({})
        after = readable_ranges(program.stream, [wanted], progress.scan)
    assert [part.count for part in before] == [3]
    assert [part.count for part in after] == [1, 1]


def test_a_footer_of_the_scan_is_held_against_what_was_listed_since() -> None:
    """The scan's newest block has a successor now, and between the two one is missing."""
    program = Program()
    progress = StreamProgress(program.stream)
    with closing(JournalWriter(program.stream, "r0")) as writer:
        publish(writer, "a", 1)
        progress.ends({})
        publish(writer, "a", 2)
        program.stream.storage.delete(block_path("numbers", writer.id, 1))
        wanted = OffsetRange(str(writer.id), 0, 3)
        first, _ = slice_ranges(program.stream, [wanted], progress.scan)
        with pytest.raises(MissingBlockError, match=r"\[1, 2\)"):
            slice_footer(program.stream, first, progress.scan)


@pytest.mark.parametrize("sealed", [True, False])
def test_a_block_that_went_after_the_scan_is_missing(sealed: bool) -> None:
    program = Program()
    progress = StreamProgress(program.stream)
    writer = write_blocks(program.stream, [["a"], ["b"]], close=sealed)
    for _ in range(2):
        progress.ends({})
    program.stream.storage.delete(block_path("numbers", writer, 0))
    (gone,) = slice_ranges(program.stream, [OffsetRange(str(writer), 0, 1)], progress.scan)
    with pytest.raises(MissingBlockError, match=r"\[0, 1\).*missing"):
        slice_footer(program.stream, gone, progress.scan)
    with pytest.raises(MissingBlockError, match=r"\[0, 1\).*missing"):
        list(read_slices(program.stream, [gone]))


def test_a_damaged_newest_block_that_is_given_up_has_no_footer_in_the_scan() -> None:
    program = Program()
    progress = StreamProgress(program.stream)
    writer = write_blocks(program.stream, [["a"], ["b"]], close=False)
    rewrite(program.stream.storage, block_path("numbers", writer, 1), b"damaged")
    lost = OffsetRange(str(writer), 1, 2)
    create_loss(program.stream.storage, "numbers", Loss(lost, "test", "me", "here", "now"))
    assert [end.end_offset for end in progress.ends({}).values()] == [2]
    assert progress.scan is not None
    assert progress.scan.footer(str(writer), 1) is None
    assert progress.scan.lost == {str(writer): [lost]}


def publish(writer: JournalWriter, record: str, blocks: int) -> None:
    for _ in range(blocks):
        writer.append(record)
        writer.flush()
