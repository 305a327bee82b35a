"""Files of dead letters, and their replay: each record once, whatever cuts a replay off."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import ConfigError, DamagedBlockError, PenstockError, StorageError
from penstock.journal import JournalStream, RecordFormat, read_records
from penstock.journal.bad_records.dead_letters import (
    DeadLetter,
    DeadLetterFolder,
    dead_letter_folders,
    folder_name,
    source_stream,
)
from penstock.journal.bad_records.replay import replay
from penstock.journal.retention.registration import register_consumer
from penstock.journal.retention.retirement import retire
from penstock.model import OffsetRange
from penstock.storage import Storage
from tests.journal.helpers import clear_memory, memory_stream, read_all, write_blocks
from tests.storage.faulty_storage import FaultyStorage, Operation

WRITER = "r0-00000000"


@pytest.fixture
def dead(stream: JournalStream) -> DeadLetterFolder:
    write_blocks(stream, [[f"record {n}" for n in range(100)]])
    return DeadLetterFolder.create(stream.storage, stream.name)


def find(dead: DeadLetterFolder, *offsets: int, program: str = "job") -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    letters = [
        DeadLetter(f"raw {at}".encode(), "ValueError", "bad", WRITER, at, now) for at in offsets
    ]
    dead.store(OffsetRange(WRITER, min(offsets), max(offsets) + 1), letters, program)


def waiting(dead: DeadLetterFolder) -> list[int]:
    return [at for file in dead.waiting() for at in dead.read(file)["offset"].to_pylist()]


def replayed(stream: JournalStream) -> list[str]:
    return [record for record in read_all(stream) if record.startswith("raw")]


def test_a_cell_that_is_parsed_again_leaves_one_letter_for_each_record(
    dead: DeadLetterFolder,
) -> None:
    for _ in range(2):
        find(dead, 3, 7)
    find(dead, 50)
    assert waiting(dead) == [3, 7, 50]
    assert dead.count_waiting() == 3
    find(dead, 3)  # another parser refuses less
    assert sorted(waiting(dead)) == [3, 3, 7, 50]


def test_any_reader_of_parquet_reads_them(dead: DeadLetterFolder) -> None:
    find(dead, 3)
    (file,) = dead.waiting()
    path = dead.storage.uri(f"{dead.name}/{file.name}").removeprefix("file://")
    (row,) = pq.read_table(path).to_pylist()
    assert (row["raw"], row["writer"], row["offset"]) == (b"raw 3", WRITER, 3)


def test_letters_become_records_and_their_files_are_deleted(
    stream: JournalStream, dead: DeadLetterFolder
) -> None:
    find(dead, 1, 5)
    assert replay(dead, stream) == 2
    assert replayed(stream) == ["raw 1", "raw 5"]
    assert list(read_records(stream, [OffsetRange("replay-00000000", 0, 2)])) == ["raw 1", "raw 5"]
    assert waiting(dead) == []
    assert replay(dead, stream) == 0
    find(dead, 1, 5)  # by a task that was asleep
    assert waiting(dead) == []
    find(dead, 7)
    assert replay(dead, stream) == 1
    assert replayed(stream) == ["raw 1", "raw 5", "raw 7"]


def test_two_programs_leave_a_letter_each_and_a_replay_stores_it_once(
    stream: JournalStream, dead: DeadLetterFolder
) -> None:
    find(dead, 3, 7, program="a")
    find(dead, 3, 7, program="b")  # cut as the other's
    find(dead, 9, program="a")
    find(dead, 9, 11, program="b")  # cut otherwise
    assert sorted(waiting(dead)) == [3, 3, 7, 7, 9, 9, 11]
    assert replay(dead, stream) == 7
    assert sorted(replayed(stream)) == ["raw 11", "raw 3", "raw 7", "raw 9"]


def test_a_program_that_starts_later_does_not_store_a_record_again(storage: Storage) -> None:
    source = JournalStream.create(storage, "lines", RecordFormat("string"))
    write_blocks(source, [["a"] * 5, ["b"] * 5])
    dead = DeadLetterFolder.create(storage, "lines")
    first = register_consumer(source, "first", "owner")
    find(dead, 3, program="first")
    find(dead, 7, program="first")
    first.commit({WRITER: 10}, retained={WRITER: 0})
    assert replay(dead, source) == 2
    late = register_consumer(source, "late", "another")
    assert late.begin[WRITER] == 0
    find(dead, 3, program="late")
    find(dead, 7, 8, program="late")
    assert replay(dead, source) == 3
    assert replayed(source) == ["raw 3", "raw 7", "raw 8"]
    for consumer in (first, late):
        consumer.commit({WRITER: 5})
    retire(source)
    assert replay(dead, source) == 0
    assert {mark.records.start_offset for mark in dead.replayed()} == {7}  # 3 comes no more


def test_some_files_of_them(stream: JournalStream, dead: DeadLetterFolder) -> None:
    find(dead, *range(10))
    find(dead, *range(20, 25))
    assert [replay(dead, stream, 1) for _ in range(3)] == [10, 5, 0]
    assert sorted(replayed(stream)) == sorted(f"raw {n}" for n in [*range(10), *range(20, 25)])


def test_several_streams_into_one(storage: Storage, stream: JournalStream) -> None:
    write_blocks(stream, [["x"] * 10])
    other = JournalStream.create(storage, "other", RecordFormat("string"))
    write_blocks(other, [["x"] * 20])
    first, second = (DeadLetterFolder.create(storage, name) for name in ("lines", "other"))
    for step in range(3):
        find(first, step)
        find(second, 10 + step)
        assert replay(first, stream) == 1
        assert replay(second, stream) == 1
    assert replayed(stream) == ["raw 0", "raw 10", "raw 1", "raw 11", "raw 2", "raw 12"]


def test_a_target_with_other_records_is_refused(
    storage: Storage, stream: JournalStream, dead: DeadLetterFolder
) -> None:
    find(dead, 1)
    numbers = JournalStream.create(storage, "numbers", RecordFormat(pa.schema([("n", pa.int8())])))
    with pytest.raises(ConfigError, match="replay them into 'lines'"):
        replay(dead, numbers)
    assert numbers.writers() == []
    twin = JournalStream.create(storage, "twin", stream.format)
    assert replay(dead, twin) == 1
    assert read_all(twin) == ["raw 1"]


def test_a_letter_that_the_stream_refuses_is_named(
    stream: JournalStream, dead: DeadLetterFolder
) -> None:
    letter = DeadLetter(b"\xff", "ValueError", "bad", WRITER, 1, datetime.now(timezone.utc))
    dead.store(OffsetRange(WRITER, 1, 2), [letter])
    (file,) = dead.waiting()
    with pytest.raises(ConfigError, match=rf"deleting the file with that letter.*{file.name}"):
        replay(dead, stream)
    assert waiting(dead) == [1]


def test_a_damaged_file_is_named_and_nothing_is_lost(
    stream: JournalStream, dead: DeadLetterFolder, storage: Storage
) -> None:
    find(dead, 3)
    (file,) = dead.waiting()
    path = f"lines-dead/{file.name}"
    sound = storage.read(path)
    storage.create(path, sound[:-9], overwrite=True)
    with pytest.raises(DamagedBlockError, match="deleting it discards its dead letters"):
        replay(dead, stream)
    storage.create(path, sound, overwrite=True)
    assert replay(dead, stream) == 1


def test_a_replay_cut_off_at_any_step_goes_on() -> None:
    """At each storage operation; test_bad_records_kills.py does it by SIGKILL."""
    for step in itertools.count():
        stream = memory_stream()
        write_blocks(stream, [["record"] * 100])
        dead = DeadLetterFolder.create(stream.storage, stream.name)
        find(dead, 0)
        find(dead, 1)
        was_cut = _cut_off(stream, dead, step)
        replay(dead, stream)
        assert replayed(stream) == ["raw 0", "raw 1"]
        assert waiting(dead) == []
        clear_memory()
        if not was_cut:
            break
    assert step > 20


def _cut_off(stream: JournalStream, dead: DeadLetterFolder, step: int) -> bool:
    """Replay, with no storage any more from a step on; return whether it came to that step."""
    steps = itertools.count()

    def fail(_: Operation) -> None:
        if next(steps) >= step:
            raise StorageError("cut off")

    faulty = FaultyStorage(stream.storage, before=fail)
    try:
        replay(
            DeadLetterFolder(faulty, dead.source), JournalStream(faulty, stream.name, stream.format)
        )
    except PenstockError:
        return True
    return False


def test_names(storage: Storage) -> None:
    assert source_stream(folder_name("a-dead")) == "a-dead"
    for wrong in ("clicks", "-dead"):
        with pytest.raises(ConfigError, match="not a folder of dead letters"):
            source_stream(wrong)
    JournalStream.create(storage, "x-dead", RecordFormat("string"))
    with pytest.raises(ConfigError, match="a stream has the name 'x-dead'"):
        DeadLetterFolder.create(storage, "x")
    find(DeadLetterFolder.create(storage, "y"), 1)
    assert [folder.source for folder in dead_letter_folders(storage)] == ["y"]
