"""The journal as a source: batches are planned, read, committed and retired without Spark."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.errors import MissingBlockError
from penstock.journal import JournalStream, JournalWriter, ranges_between, register_consumer
from penstock.journal.layout import WriterId
from penstock.journal.losses.loss_log import Loss, create_loss
from penstock.journal.source import JournalSource, lane_of
from penstock.model import OffsetRange, Offsets
from tests.journal.helpers import PATIENT, memory_stream, path_of, write_blocks

BLOCKS = [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]  # at 0, 2, 3, 6


def source_of(stream: JournalStream, consumer: str = "job") -> JournalSource:
    return JournalSource(register_consumer(stream, consumer, consumer))


def read(source: JournalSource, start: Offsets, end: Offsets) -> list[str]:
    batches = source.read(ranges_between(start, end))
    return [record for batch in batches for record in source.stream.format.to_python(batch)]


def starts(stream: JournalStream, writer: WriterId) -> list[int]:
    return [block.start_offset for block in stream.blocks(writer)]


def test_batches_are_planned_read_committed_and_retired_over_restarts() -> None:
    stream = memory_stream()
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    at: Offsets = {}
    seen: list[str] = []
    for records in BLOCKS:
        source = source_of(stream)  # another run each time, which knows only ``at``
        writer.append_all(records)
        writer.flush()
        end = source.latest(at)
        assert source.count(ranges_between(at, end)) == len(records)
        seen += read(source, at, end)
        assert read(source, at, end) == records  # again, as after a failure
        source.commit(at, end)
        at = end
    writer.close()
    assert seen == list("abcdefg")
    assert starts(stream, writer.id) == [6, 7]


def test_what_is_retained_can_be_read_again_and_what_is_retired_says_so() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    name = str(writer)
    source = source_of(stream)
    source.commit({}, {name: 6}, retained={name: 3})
    assert read(source, {name: 3}, {name: 6}) == list("def")
    assert source.has_blocks([OffsetRange(name, 3, 7)])
    assert not source.has_blocks([OffsetRange(name, 0, 2)])
    for start in (3, 6, 7):
        stream.storage.delete(path_of(stream, writer, start))
    with pytest.raises(MissingBlockError):
        source.has_blocks([OffsetRange(name, 6, 7)])


def test_a_journal_behind_the_offsets_is_refused_with_the_way_out() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=False)
    with pytest.raises(MissingBlockError) as caught:
        source_of(stream).latest({str(writer): 9})
    assert "restore the journal" in str(caught.value.hint)
    assert "penstock journal skip" in str(caught.value.hint)


def test_records_that_were_given_up_are_not_counted() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    source = source_of(stream)
    lost = OffsetRange(str(writer), 2, 3)
    create_loss(stream.storage, stream.name, Loss(lost, "test", "me", "here", "now"))
    end = source.latest({})
    assert source.count(ranges_between({}, end)) == 6
    assert read(source, {}, end) == list("abdefg")


def test_a_lane_is_a_receiver_whose_epochs_follow_each_other() -> None:
    assert [lane_of("r0-00000003"), lane_of("other")] == [("r0", 3), ("other", 0)]


def test_it_works_without_spark() -> None:
    check = "import sys, penstock.journal.source; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
