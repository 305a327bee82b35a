"""Records that are given up: what may be, what readers leave out, and how a stream goes on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.errors import (
    ConfigError,
    DamagedBlockError,
    JournalError,
    LogFormatError,
    MissingBlockError,
    NewerBlockError,
    StorageError,
)
from penstock.journal import (
    JournalStream,
    JournalWriter,
    StreamProgress,
    advance,
    commit_consumer,
    ranges_between,
    read_records,
    retire,
    verify_stream,
)
from penstock.journal.epochs import claim_writer
from penstock.journal.layout import WriterId, claim_path
from penstock.journal.losses.loss_log import lost_ranges, read_losses, without_lost
from penstock.journal.losses.skip import skip
from penstock.journal.losses.way_out import with_command
from penstock.model import OffsetRange
from penstock.storage import Storage
from tests.journal.helpers import PATIENT, memory_stream, path_of, read_all, rewrite, write_blocks
from tests.storage.faulty_storage import FaultyStorage

BLOCKS = [["a", "b"], ["c"], ["d", "e", "f"]]
WRITER = "r0-00000000"


@pytest.fixture
def writer(stream: JournalStream) -> WriterId:
    return write_blocks(stream, BLOCKS)


def records(start: int, end: int, writer: str = WRITER) -> OffsetRange:
    return OffsetRange(writer, start, end)


def flip(stream: JournalStream, writer: WriterId, start: int, at: int = 30) -> None:
    """Damage a block; ``at`` counts from the end when negative."""
    path = path_of(stream, writer, start)
    data = bytearray(stream.storage.read(path))
    data[at] ^= 1
    rewrite(stream.storage, path, bytes(data))


def remove(stream: JournalStream, writer: WriterId, start: int) -> None:
    stream.storage.delete(path_of(stream, writer, start))


def refused(stream: JournalStream, wanted: OffsetRange) -> str:
    before = lost_ranges(stream.storage, stream.name)
    with pytest.raises(ConfigError) as caught:
        skip(stream, wanted, "why not")
    assert lost_ranges(stream.storage, stream.name) == before
    return str(caught.value)


# -- what is left out --


@pytest.mark.parametrize("damage", [flip, remove])
@pytest.mark.parametrize(("start", "end", "left"), [(0, 2, "cdef"), (2, 3, "abdef"), (3, 6, "abc")])
def test_readers_leave_a_given_up_block_out(
    stream: JournalStream,
    writer: WriterId,
    damage: Callable[[JournalStream, WriterId, int], None],
    start: int,
    end: int,
    left: str,
) -> None:
    damage(stream, writer, start)
    with pytest.raises(JournalError):
        list(read_records(stream, [records(0, 6)]))
    loss = skip(stream, records(start, end), " the disk lost it ")
    assert loss is not None
    assert "".join(read_records(stream, [records(0, 6)])) == left
    for at in range(6):
        found = list(read_records(stream, [records(at, at + 1)]))
        assert found == ([] if start <= at < end else ["abcdef"[at]])
    assert all(v.error is None or v.skipped for v in verify_stream(stream))
    (kept,) = read_losses(stream.storage, stream.name)
    assert kept == loss
    assert (kept.records, kept.reason) == (records(start, end), "the disk lost it")


def test_every_other_byte_of_the_range_is_still_checked(
    stream: JournalStream, writer: WriterId
) -> None:
    flip(stream, writer, 2)
    skip(stream, records(2, 3), "damaged")
    flip(stream, writer, 3)
    with pytest.raises(DamagedBlockError):
        list(read_records(stream, [records(0, 6)]))
    assert [v.skipped for v in verify_stream(stream) if v.error] == [True, False]


def test_giving_up_again_changes_nothing(stream: JournalStream, writer: WriterId) -> None:
    flip(stream, writer, 3)
    assert skip(stream, records(3, 5), "damaged") is not None
    assert skip(stream, records(3, 5), "again") is None
    assert "3-6 cannot be skipped: some of these" in refused(stream, records(3, 6))
    skip(stream, records(5, 6), "the rest")
    assert skip(stream, records(3, 6), "again") is None
    assert [loss.reason for loss in read_losses(stream.storage, stream.name)] == [
        "damaged",
        "the rest",
    ]


def test_it_is_logged_once_for_a_range(
    stream: JournalStream, writer: WriterId, caplog: pytest.LogCaptureFixture
) -> None:
    flip(stream, writer, 2)
    skip(stream, records(2, 3), "damaged")
    for _ in range(3):
        list(read_records(stream, [records(0, 6)]))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("1 records of [0, 6) of writer r0-00000000 of stream lines were skipped")


def test_retention_deletes_what_was_given_up(stream: JournalStream, writer: WriterId) -> None:
    flip(stream, writer, 2)
    skip(stream, records(2, 3), "damaged")
    commit_consumer(stream, "job", {str(writer): 6})
    assert retire(stream) == 3
    assert len(read_losses(stream.storage, stream.name)) == 1


# -- what must not be given up --


def test_sound_records_are_never_given_up(stream: JournalStream, writer: WriterId) -> None:
    assert "records [0, 2) of them can be read" in refused(stream, records(0, 2))
    flip(stream, writer, 2)
    said = refused(stream, records(1, 4))
    assert "records [1, 2) of them can be read" in said
    assert "`penstock journal verify`" in said
    assert "records [3, 4) of them can be read" in refused(stream, records(2, 4))
    assert "no such writer" in refused(stream, records(0, 1, "r0"))
    assert "no such writer" in refused(stream, records(0, 1, "r0-00000007"))
    assert "empty" in refused(stream, records(2, 2))


def test_a_reason_is_asked_for(stream: JournalStream, writer: WriterId) -> None:
    flip(stream, writer, 2)
    with pytest.raises(ConfigError, match="no reason"):
        skip(stream, records(2, 3), " ")


def test_a_block_of_a_newer_format_is_not_given_up(
    stream: JournalStream, writer: WriterId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.journal.block.FORMAT_VERSION", 2)
    newer = write_blocks(stream, [["x"]], receiver="newer")
    monkeypatch.undo()
    with pytest.raises(NewerBlockError, match="upgrade penstock"):
        skip(stream, records(0, 1, str(newer)), "cannot be read")
    (verdict, *_) = [v for v in verify_stream(stream) if v.writer == newer]
    assert verdict.unreadable is None


def test_a_block_whose_disk_is_away_is_not_given_up(
    stream: JournalStream, writer: WriterId, storage: Storage
) -> None:
    faulty = FaultyStorage(storage)
    faulty.fail("read", path=path_of(stream, writer, 2))
    with pytest.raises(StorageError):
        skip(JournalStream(faulty, stream.name, stream.format), records(2, 3), "cannot be read")
    assert not lost_ranges(storage, stream.name)


def test_what_an_open_writer_has_not_written_is_not_given_up(stream: JournalStream) -> None:
    writer = write_blocks(stream, BLOCKS, close=False)
    flip(stream, writer, 3)  # its footer still tells where it ends
    assert "still to be written" in refused(stream, records(3, 7))
    assert skip(stream, records(3, 6), "damaged") is not None
    empty = JournalWriter(stream, "empty", policy=PATIENT)
    assert "still to be written" in refused(stream, records(0, 1, str(empty.id)))
    empty.close()


def test_a_lost_end_of_an_open_writer_is_given_up_as_far_as_consumers_were(
    stream: JournalStream,
) -> None:
    writer = write_blocks(stream, BLOCKS, close=False)
    commit_consumer(stream, "job", {WRITER: 5})
    stream.storage.delete(path_of(stream, writer, 3))
    assert "ends at 5: what follows is still to be written" in refused(stream, records(3, 6))
    assert skip(stream, records(3, 5), "gone") is not None
    later = write_blocks(stream, [["x"]])  # seals it behind the loss
    assert read_all(stream) == ["a", "b", "c", "x"]
    assert StreamProgress(stream).ends({WRITER: 5})[writer].end_offset == 5
    assert StreamProgress(stream).ends({WRITER: 5})[writer].sealed
    assert later.epoch == 1


def test_a_range_does_not_run_over_the_end_of_a_sealed_writer(
    stream: JournalStream, writer: WriterId
) -> None:
    flip(stream, writer, 3)
    assert "the writer ended at 6" in refused(stream, records(3, 60))


# -- the newest block, whose end is unknown --


@pytest.fixture
def headless(stream: JournalStream) -> WriterId:
    """An open writer whose newest block, of records 3 to 5, has lost its footer."""
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    for place, block in enumerate(BLOCKS):
        writer.append_all(block, position=place)
        writer.flush()
    writer.abandon()
    flip(stream, writer.id, 3, -20)
    return writer.id


def test_the_next_epoch_goes_on_after_a_given_up_end(
    stream: JournalStream, headless: WriterId
) -> None:
    with pytest.raises(DamagedBlockError, match="penstock journal verify file://"):
        claim_writer(stream, "r0")
    with pytest.raises(DamagedBlockError):
        StreamProgress(stream).ends({})
    skip(stream, records(3, 6), "torn")
    assert StreamProgress(stream).ends({})[headless].end_offset == 6
    _, position = claim_writer(stream, "r0")
    assert position == 1  # as of the block before: its source sends again what came after
    newest = stream.newest(headless)
    assert newest is not None
    assert (newest.end_offset, newest.sealed) == (6, True)
    assert read_all(stream) == ["a", "b", "c"]
    assert all(v.error is None or v.skipped for v in verify_stream(stream))


def test_a_position_is_found_in_earlier_epochs(stream: JournalStream) -> None:
    for place, block in enumerate(BLOCKS):
        writer = JournalWriter(stream, "r0", policy=PATIENT)
        writer.append_all(block, position={"at": place})
        writer.close()
    for epoch, start in ((1, 0), (1, 1), (2, 0), (2, 3)):
        flip(stream, WriterId("r0", epoch), start, -20)
    skip(stream, records(0, 4, "r0-00000002"), "torn")
    for _ in range(2):
        assert claim_writer(stream, "r0")[1] == {"at": 0}


def test_verify_reports_an_unknown_end_as_far_as_consumers_are(
    stream: JournalStream, headless: WriterId
) -> None:
    commit_consumer(stream, "job", {str(headless): 5})
    (damaged,) = [v for v in verify_stream(stream) if v.error]
    assert damaged.unreadable == records(3, 5)


@pytest.mark.parametrize("sealed", [False, True])
def test_more_can_be_given_up_where_more_was_planned(
    stream: JournalStream, headless: WriterId, sealed: bool
) -> None:
    planned = {str(headless): 6}
    skip(stream, records(3, 4), "torn")
    if sealed:
        claim_writer(stream, "r0")
    with pytest.raises(MissingBlockError):
        advance(planned, StreamProgress(stream).ends(planned))
    with pytest.raises(JournalError) as caught:
        list(read_records(stream, ranges_between({}, planned)))
    run_hint(stream, caught.value)
    assert list(read_records(stream, ranges_between({}, planned))) == ["a", "b", "c"]
    after = advance(planned, StreamProgress(stream).ends(planned))
    assert after.get(str(headless), 6) == 6
    claim_writer(stream, "r0")


def test_a_lost_end_can_be_given_up_where_a_plan_goes_beyond_it(
    stream: JournalStream, writer: WriterId
) -> None:
    for start in (3, 6):  # its newest block, and the seal
        remove(stream, writer, start)
    claim_writer(stream, "r0")  # seals it where it ends now
    planned = {WRITER: 6}
    with pytest.raises(MissingBlockError) as caught:
        advance(planned, StreamProgress(stream).ends(planned))
    run_hint(stream, with_command(stream, caught.value))
    assert advance(planned, StreamProgress(stream).ends(planned)) == {"r0-00000001": 0}
    assert list(read_records(stream, ranges_between({}, planned))) == ["a", "b", "c"]


def test_wherever_the_newest_block_is_damaged_the_next_receiver_goes_on() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=False)
    sound = stream.storage.read(path_of(stream, writer, 3))
    for at in range(0, len(sound), 7):
        rewrite(stream.storage, path_of(stream, writer, 3), sound)
        flip(stream, writer, 3, at)
        (verdict,) = [v for v in verify_stream(stream) if v.error]
        assert verdict.unreadable is not None
        skip(stream, verdict.unreadable, "flipped")
        successor, _ = claim_writer(stream, "r0")
        assert read_all(stream) == ["a", "b", "c"]
        assert all(v.error is None or v.skipped for v in verify_stream(stream))
        start_again(stream, writer, successor)


def start_again(stream: JournalStream, writer: WriterId, successor: WriterId) -> None:
    """Undo a loss, a claim and a seal."""
    for entry in stream.storage.list(f"{stream.name}/losses"):
        stream.storage.delete(f"{stream.name}/losses/{entry.name}")
    stream.storage.delete(claim_path(stream.name, successor))
    for block in stream.blocks(writer):
        if block.start_offset > 3:
            remove(stream, writer, block.start_offset)


def test_a_writer_without_its_blocks_can_be_given_up_once_another_followed(
    stream: JournalStream, writer: WriterId
) -> None:
    for start in (0, 2, 3, 6):
        remove(stream, writer, start)
    assert "still to be written" in refused(stream, records(0, 6))
    write_blocks(stream, [["g"]])
    skip(stream, records(0, 6), "its folder was deleted")
    planned = {WRITER: 6}
    assert list(read_records(stream, ranges_between({}, planned))) == []
    assert advance(planned, StreamProgress(stream).ends(planned))["r0-00000001"] == 1


# -- the commands that errors name --


def run_hint(stream: JournalStream, error: JournalError) -> None:
    """Give up what the command in an error's hint says."""
    (command,) = re.findall(r"`(penstock journal skip [^`]*)`", str(error))
    _, _, _, url, name, what, option, _ = shlex.split(command)
    assert (url, name, option) == (stream.storage.url, stream.name, "--reason")
    partition, start, end = re.fullmatch(r"(.+):(\d+)-(\d+)", what).groups()  # type: ignore[union-attr]
    skip(stream, records(int(start), int(end), partition), "as the hint said")


def damages() -> Iterator[Any]:
    """Ways to damage some of the blocks, and the records that are lost by it."""
    spans = {0: "ab", 2: "c", 3: "def"}
    for how in (flip, remove):
        for starts in ([0], [2], [3], [0, 3], [2, 3], [0, 2, 3]):
            lost = "".join(spans[start] for start in starts)
            yield pytest.param(how, starts, lost, id=f"{how.__name__}-{starts}")


@pytest.mark.parametrize(("damage", "starts", "lost"), list(damages()))
def test_commands_of_failed_reads_give_up_just_what_is_lost(
    stream: JournalStream, writer: WriterId, damage: Any, starts: list[int], lost: str
) -> None:
    for start in starts:
        damage(stream, writer, start)
    for _ in range(4):
        try:
            found = list(read_records(stream, [records(0, 6)]))
            break
        except JournalError as e:
            run_hint(stream, e)
    assert "".join(found) == "".join(r for r in "abcdef" if r not in lost)
    skipped = read_losses(stream.storage, stream.name)
    assert sum(loss.records.count for loss in skipped) == len(lost)


def test_a_damaged_entry_is_named_and_its_range_left_out(
    stream: JournalStream, writer: WriterId, storage: Storage
) -> None:
    flip(stream, writer, 2)
    skip(stream, records(2, 3), "damaged")
    (entry,) = storage.list("lines/losses")
    rewrite(storage, f"lines/losses/{entry.name}", b"{")
    assert read_all(stream) == ["a", "b", "d", "e", "f"]
    with pytest.raises(LogFormatError, match="left out nevertheless"):
        read_losses(storage, "lines")


def test_ranges_without_lost_ones() -> None:
    lost = {"w": [records(2, 4, "w"), records(3, 6, "w"), records(8, 9, "w")]}

    def left(start: int, end: int) -> list[tuple[int, int]]:
        ranges = without_lost([OffsetRange("w", start, end)], lost)
        return [(r.start_offset, r.end_offset) for r in ranges]

    for start in range(11):
        for end in range(start, 11):
            kept = [at for part in left(start, end) for at in range(*part)]
            assert kept == [at for at in range(start, end) if at in (0, 1, 6, 7, 9, 10)]
    assert without_lost([OffsetRange("v", 0, 9)], lost) == [OffsetRange("v", 0, 9)]
