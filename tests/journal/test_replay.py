"""Dead letters fed back: each once, in order, whatever cuts a replay off; then they are freed."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import ConfigError, PenstockError, StorageError
from penstock.journal import JournalStream, RecordFormat, commit_consumer, read_records
from penstock.journal.bad_records.dead_letters import (
    DeadLetter,
    collect,
    create_dead_letters,
    last_writer,
    stage_dead_letters,
    uncollected,
)
from penstock.journal.bad_records.replay import EarlierAttempts, letters_to_replay, replay
from penstock.journal.losses.skip import skip
from penstock.journal.retention.registration import register_consumer
from penstock.journal.retention.retirement import retire
from penstock.model import OffsetRange
from penstock.storage import Storage
from tests.journal.helpers import (
    clear_memory,
    memory_stream,
    path_of,
    read_all,
    rewrite,
    write_blocks,
)
from tests.storage.faulty_storage import FaultyStorage, Operation

WRITER = "r0-00000000"


@pytest.fixture
def dead(stream: JournalStream) -> JournalStream:
    write_blocks(stream, [[f"record {n}" for n in range(100)]])
    return create_dead_letters(stream)


def find(dead: JournalStream, *offsets: int, attempts: int = 1, program: str = "job") -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    letters = [
        DeadLetter(f"raw {at}".encode(), "ValueError", "bad", WRITER, at, now, attempts)
        for at in offsets
    ]
    stage_dead_letters(dead, OffsetRange(WRITER, min(offsets), max(offsets) + 1), letters, program)


def replayed(stream: JournalStream) -> list[str]:
    return [record for record in read_all(stream) if record.startswith("raw")]


def test_letters_become_records_and_are_freed(stream: JournalStream, dead: JournalStream) -> None:
    find(dead, 1, 5)
    assert replay(dead, stream) == 2
    assert replayed(stream) == ["raw 1", "raw 5"]
    assert list(letters_to_replay(dead)) == []
    assert [len(dead.blocks(writer)) for writer in dead.writers()] == [1]  # the seal
    assert replay(dead, stream) == 0
    find(dead, 7)
    assert replay(dead, stream) == 1
    assert replayed(stream) == ["raw 1", "raw 5", "raw 7"]


def position(stream: JournalStream) -> dict[str, Any]:
    newest = stream.newest(max(w for w in stream.writers() if w.receiver == "replay"))
    assert newest is not None
    return dict(newest.position)


def test_two_programs_leave_a_letter_each_and_a_replay_stores_it_once(
    stream: JournalStream, dead: JournalStream
) -> None:
    find(dead, 3, 7, program="a")
    find(dead, 3, 7, program="b")  # cut as the other's
    find(dead, 9, program="a")
    find(dead, 9, 11, program="b")  # cut otherwise
    collect(stream, dead)
    assert sorted(letter["offset"] for letter in read_all(dead)) == [3, 3, 7, 7, 9, 9, 11]
    assert replay(dead, stream) == 7
    assert sorted(replayed(stream)) == ["raw 11", "raw 3", "raw 7", "raw 9"]


def test_a_letter_that_comes_after_the_replay_is_not_stored_again(
    stream: JournalStream, dead: JournalStream
) -> None:
    commit_consumer(stream, "quick", {WRITER: 50})
    commit_consumer(stream, "slow", {WRITER: 5})
    find(dead, 3, 7, 8, program="quick")
    assert replay(dead, stream, limit=2) == 2
    find(dead, 3, 7, 8, program="slow")
    assert replay(dead, stream) == 4
    assert replayed(stream) == ["raw 3", "raw 7", "raw 8"]


def test_a_program_that_starts_later_does_not_store_a_record_again(storage: Storage) -> None:
    source = JournalStream.create(storage, "lines", RecordFormat("string"))
    write_blocks(source, [["a"] * 5, ["b"] * 5])
    dead = create_dead_letters(source)
    first = register_consumer(source, "first", "owner")
    find(dead, 3, program="first")
    find(dead, 7, program="first")
    first.commit({WRITER: 10}, retained={WRITER: 0})
    assert replay(dead, source) == 2
    late = register_consumer(source, "late", "another")
    assert late.begin[WRITER] == 0
    find(dead, 3, program="late")
    find(dead, 7, program="late")
    assert replay(dead, source) == 2
    assert replayed(source) == ["raw 3", "raw 7"]
    for consumer in (first, late):
        consumer.commit({WRITER: 5})
    retire(source)
    find(dead, 8, program="first")
    assert replay(dead, source) == 1
    assert position(source)["records"]["lines-dead"] == {WRITER: [[7, 9]]}  # 3 comes no more


def test_replaying_nothing_leaves_nothing(stream: JournalStream, dead: JournalStream) -> None:
    assert replay(dead, stream) == 0
    assert [str(writer) for writer in stream.writers()] == [WRITER]
    assert dead.writers() == []


def test_some_of_them(stream: JournalStream, dead: JournalStream) -> None:
    find(dead, *range(10))
    collect(stream, dead)
    find(dead, *range(20, 25))
    assert [replay(dead, stream, limit=4) for _ in range(5)] == [4, 4, 4, 3, 0]
    expected = [f"raw {n}" for n in [*range(10), *range(20, 25)]]
    assert sorted(replayed(stream)) == sorted(expected)
    assert list(letters_to_replay(dead)) == []


def test_letters_that_are_collected_meanwhile_are_neither_missed_nor_doubled(
    stream: JournalStream, dead: JournalStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program moves them between a look at the stream and one at what is staged."""
    find(dead, 1, 5)

    def collected_just_now(dead: JournalStream) -> list[pa.Table]:
        collect(stream, dead)
        return list(uncollected(dead))

    monkeypatch.setattr("penstock.journal.bad_records.replay.uncollected", collected_just_now)
    tables = list(letters_to_replay(dead))
    assert [raw for table in tables for raw in table["raw"].to_pylist()] == [b"raw 1", b"raw 5"]


def test_letters_to_replay_changes_nothing(stream: JournalStream, dead: JournalStream) -> None:
    find(dead, 1, 5)
    collect(stream, dead)
    find(dead, 8)
    tables = list(letters_to_replay(dead))
    assert [at for table in tables for at in table.column("offset").to_pylist()] == [1, 5, 8]
    assert len(read_all(dead)) == 2
    assert replay(dead, stream, limit=1) == 1
    assert sum(table.num_rows for table in letters_to_replay(dead)) == 2


def test_another_consumer_keeps_the_letters(stream: JournalStream, dead: JournalStream) -> None:
    find(dead, 1)
    collect(stream, dead)
    commit_consumer(dead, "alerts", {})
    replay(dead, stream)
    assert len(read_all(dead)) == 1


def test_several_streams_into_one(storage: Storage, stream: JournalStream) -> None:
    other = JournalStream.create(storage, "other", RecordFormat("string"))
    write_blocks(other, [["x"]])
    first, second = create_dead_letters(stream), create_dead_letters(other)
    for step in range(3):
        find(first, step)
        find(second, 10 + step)
        assert replay(first, stream) == 1
        assert replay(second, stream) == 1
    assert replayed(stream) == ["raw 0", "raw 10", "raw 1", "raw 11", "raw 2", "raw 12"]


def test_a_target_with_other_records_is_refused(
    storage: Storage, stream: JournalStream, dead: JournalStream
) -> None:
    find(dead, 1)
    numbers = JournalStream.create(storage, "numbers", RecordFormat(pa.schema([("n", pa.int8())])))
    with pytest.raises(ConfigError, match="replay them into 'lines'"):
        replay(dead, numbers)
    assert numbers.writers() == []
    twin = JournalStream.create(storage, "twin", stream.format)
    assert replay(dead, twin) == 1
    assert read_all(twin) == ["raw 1"]


def test_attempts_are_known_of_replayed_records(stream: JournalStream, dead: JournalStream) -> None:
    find(dead, 1, attempts=1)
    collect(stream, dead)
    find(dead, 2, 3, attempts=4)
    replay(dead, stream)
    attempts = EarlierAttempts(stream, "replay-00000000")
    assert [attempts.of(offset) for offset in range(3)] == [1, 4, 4]
    assert EarlierAttempts(stream, WRITER).of(1) == 0


def test_given_up_letters_are_passed_over(
    stream: JournalStream, dead: JournalStream, storage: Storage
) -> None:
    find(dead, 1, 2)
    collect(stream, dead)
    find(dead, 3)
    collect(stream, dead)
    writer, _ = last_writer(dead)
    path = path_of(dead, writer, 0)
    rewrite(storage, path, storage.read(path)[:-1])
    with pytest.raises(PenstockError, match="penstock journal skip"):
        replay(dead, stream)
    skip(dead, OffsetRange(str(writer), 0, 2), "torn")
    assert replay(dead, stream) == 1
    assert replayed(stream) == ["raw 3"]


def test_a_replay_cut_off_at_any_step_goes_on() -> None:
    """At each storage operation; tests/journal/test_bad_records_kills.py does it by SIGKILL."""
    for step in itertools.count():
        stream = memory_stream()
        write_blocks(stream, [["record"] * 100])
        dead = create_dead_letters(stream)
        find(dead, 0)
        collect(stream, dead)
        find(dead, 1, attempts=2)
        was_cut = _cut_off(stream, dead, step)
        replay(dead, stream)
        assert replayed(stream) == ["raw 0", "raw 1"]
        assert list(letters_to_replay(dead)) == []
        clear_memory()
        if not was_cut:
            break
    assert step > 30


def _cut_off(stream: JournalStream, dead: JournalStream, step: int) -> bool:
    """Replay, with no storage any more from a step on; return whether it came to that step."""
    steps = itertools.count()

    def fail(_: Operation) -> None:
        if next(steps) >= step:
            raise StorageError("cut off")

    faulty = FaultyStorage(stream.storage, before=fail)
    try:
        replay(*(JournalStream(faulty, each.name, each.format) for each in (dead, stream)))
    except PenstockError:
        return True
    return False


def test_everything_is_in_one_place(stream: JournalStream, dead: JournalStream) -> None:
    """Replayed records are ordinary ones: offsets from 0 on, of a writer of their own."""
    find(dead, 1, 5)
    replay(dead, stream)
    wanted = OffsetRange("replay-00000000", 0, 2)
    assert list(read_records(stream, [wanted])) == ["raw 1", "raw 5"]
