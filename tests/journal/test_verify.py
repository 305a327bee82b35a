"""Verification: every kind of damage is found in its block, and a sound journal passes."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pytest

from penstock.errors import DamagedBlockError, MissingBlockError, StorageError
from penstock.journal import (
    JournalStream,
    JournalWriter,
    RecordFormat,
    Verdict,
    commit_consumer,
    retire,
    verify_stream,
)
from penstock.journal.bad_records.dead_letters import DeadLetter, DeadLetterFolder
from penstock.journal.layout import WriterId
from penstock.journal.losses.skip import skip
from penstock.journal.verify import verify_files, verify_letters
from penstock.model import OffsetRange
from penstock.storage import Storage
from tests.journal.helpers import PATIENT, path_of, rewrite, write_blocks
from tests.storage.faulty_storage import FaultyStorage, Operation


def damaged(stream: JournalStream) -> dict[tuple[str, int], type[Exception]]:
    verdicts = list(verify_stream(stream))
    assert all((verdict.footer is None) == (verdict.error is not None) for verdict in verdicts)
    return {
        (str(verdict.writer), place_of(verdict)): type(verdict.error)
        for verdict in verdicts
        if verdict.error is not None
    }


def place_of(verdict: Verdict) -> int:
    place = verdict.block or verdict.unreadable
    assert place is not None
    return place.start_offset


@pytest.fixture
def writer(stream: JournalStream) -> WriterId:
    write_blocks(stream, [["z"]], receiver="other", close=False)
    return write_blocks(stream, [["a", "b"], ["c"], ["d"]])


def test_a_sound_stream_passes(stream: JournalStream, writer: WriterId) -> None:
    verdicts = list(verify_stream(stream))
    assert [(str(v.writer), place_of(v), v.footer and v.footer.count) for v in verdicts] == [
        ("other-00000000", 0, 1),
        (str(writer), 0, 2),
        (str(writer), 2, 1),
        (str(writer), 3, 1),
        (str(writer), 4, 0),
    ]
    assert damaged(stream) == {}


@pytest.mark.parametrize("at", [0, 2, 3, 4])
def test_a_flipped_byte_is_found_in_its_block(
    stream: JournalStream, storage: Storage, writer: WriterId, at: int
) -> None:
    path = path_of(stream, writer, at)
    data = bytearray(storage.read(path))
    data[len(data) // 2] ^= 1
    rewrite(storage, path, bytes(data))
    assert damaged(stream) == {(str(writer), at): DamagedBlockError}


@pytest.mark.parametrize("removed", [2, 3])
def test_a_missing_block_is_found_and_those_around_it_are_sound(
    stream: JournalStream, storage: Storage, writer: WriterId, removed: int
) -> None:
    storage.delete(path_of(stream, writer, removed))
    assert damaged(stream) == {(str(writer), removed): MissingBlockError}
    assert sum(v.footer.count for v in verify_stream(stream) if v.footer) == 4


def test_missing_first_blocks_are_found_where_a_consumer_has_yet_to_read_them(
    stream: JournalStream, storage: Storage, writer: WriterId
) -> None:
    commit_consumer(stream, "ahead", {str(writer): 3})
    commit_consumer(stream, "behind", {str(writer): 1})
    storage.delete(path_of(stream, writer, 0))
    storage.delete(path_of(stream, writer, 2))
    (hole,) = [verdict for verdict in verify_stream(stream) if verdict.error]
    assert hole.unreadable == OffsetRange(str(writer), 1, 3)
    assert hole.left == [hole.unreadable]
    assert skip(stream, hole.unreadable, "gone") is not None
    (hole,) = [verdict for verdict in verify_stream(stream) if verdict.error]
    assert hole.skipped


@pytest.mark.parametrize(("removed", "end"), [([4, 3], 3), ([4, 3, 2, 0], 0)])
def test_missing_last_blocks_are_found_where_a_consumer_was(
    stream: JournalStream, storage: Storage, writer: WriterId, removed: list[int], end: int
) -> None:
    commit_consumer(stream, "job", {str(writer): 4})
    for start in removed:
        storage.delete(path_of(stream, writer, start))
    (hole,) = [verdict for verdict in verify_stream(stream) if verdict.error]
    assert hole.unreadable == OffsetRange(str(writer), end, 4)


def test_what_is_written_and_committed_meanwhile_is_not_missing(
    storage: Storage, stream: JournalStream
) -> None:
    open_writer = JournalWriter(stream, "live", policy=PATIENT)
    faulty = FaultyStorage(storage)

    def go_on(operation: Operation) -> None:
        if operation.kind in ("read", "list"):
            faulty.before = lambda operation: None
            open_writer.append_all(["x"])
            open_writer.flush()
            commit_consumer(stream, "job", {str(open_writer.id): open_writer.end_offset})
            retire(stream)
            faulty.before = go_on

    open_writer.append_all(["x"])
    open_writer.flush()
    faulty.before = go_on
    assert damaged(JournalStream(faulty, stream.name, stream.format)) == {}
    open_writer.abandon()


@pytest.mark.parametrize(
    "path", ["consumers/job.json", f"losses/r0-00000000.{0:020d}-{1:020d}.json"]
)
def test_damaged_files_beside_the_blocks_are_found(
    stream: JournalStream, storage: Storage, writer: WriterId, path: str
) -> None:
    assert list(verify_files(stream)) == []
    storage.create(f"{stream.name}/{path}", b"{")
    (error,) = verify_files(stream)
    assert error.path == storage.uri(f"{stream.name}/{path}")


def test_a_damaged_file_of_dead_letters_is_found(
    stream: JournalStream, storage: Storage, writer: WriterId
) -> None:
    dead = DeadLetterFolder.create(storage, stream.name)
    letter = DeadLetter(b"b", "ValueError", "no", str(writer), 1, datetime.now(timezone.utc))
    dead.store(OffsetRange(str(writer), 0, 4), [letter])
    assert list(verify_letters(dead)) == []
    path = f"{dead.name}/{dead.waiting()[0].name}"
    rewrite(storage, path, storage.read(path)[:-1])
    (error,) = verify_letters(dead)
    assert error.path == storage.uri(path)


def test_retired_blocks_are_not_missed(stream: JournalStream, writer: WriterId) -> None:
    commit_consumer(stream, "job", {str(writer): 3, "other-00000000": 0})
    assert retire(stream) == 2
    assert damaged(stream) == {}


def test_a_renamed_a_foreign_and_an_overlapping_block_are_found(
    stream: JournalStream, storage: Storage, writer: WriterId
) -> None:
    foreign = JournalStream.create(storage, "numbers", RecordFormat(pa.schema([("n", pa.int8())])))
    of_numbers = write_blocks(foreign, [[{"n": 1}, {"n": 2}]])
    block = storage.read(path_of(stream, writer, 0))
    seal = storage.read(path_of(stream, writer, 4))
    cases = {
        0: storage.read(path_of(foreign, of_numbers, 0)),
        2: block,
        3: seal,
    }
    for at, data in cases.items():
        path = path_of(stream, writer, at)
        sound = storage.read(path)
        rewrite(storage, path, data)
        assert damaged(stream) == {(str(writer), at): DamagedBlockError}
        rewrite(storage, path, sound)


def test_a_block_behind_a_seal_is_found(
    stream: JournalStream, storage: Storage, writer: WriterId
) -> None:
    later = write_blocks(stream, [["a", "b"], ["c"], ["d"], ["e"]], receiver="longer")
    storage.create(path_of(stream, writer, 5), storage.read(path_of(stream, later, 5)))
    assert (str(writer), 4) in damaged(stream)


def test_a_read_error_is_a_verdict(
    storage: Storage, stream: JournalStream, writer: WriterId
) -> None:
    faulty = FaultyStorage(storage)
    faulty.fail("read", path=path_of(stream, writer, 2))
    found = damaged(JournalStream(faulty, stream.name, stream.format))
    assert found == {(str(writer), 2): StorageError}


@pytest.mark.parametrize(("gone", "errors"), [(0, 0), (2, 1)])
def test_blocks_that_go_meanwhile_are_retired_or_missing(
    storage: Storage, stream: JournalStream, writer: WriterId, gone: int, errors: int
) -> None:
    faulty = FaultyStorage(storage)

    def remove(operation: Operation) -> None:
        if operation.kind == "read" and operation.path == path_of(stream, writer, gone):
            storage.delete(operation.path)

    faulty.before = remove
    verdicts: list[Verdict] = list(verify_stream(JournalStream(faulty, stream.name, stream.format)))
    assert sum(verdict.error is not None for verdict in verdicts) == errors
