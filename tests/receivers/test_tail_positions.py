"""Marks in positions and copies: what they tell and take, and what kills and zombies leave."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FencedError, PenstockError, ReceiverError, StorageError
from penstock.journal import CommitPolicy, JournalWriter
from penstock.receivers.own_files import OwnFiles, StoredFiles
from penstock.receivers.tail import positions
from penstock.receivers.tail.follow import NO_DEVICE, FileId, FollowOptions, Mark
from penstock.receivers.tail.follower import Follower
from penstock.receivers.tail.positions import MarkPositions, by_path, position_from_marks
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from penstock.testing import RecordingHost
from tests.journal.helpers import read_all
from tests.receivers.http_receiver.stream import open_stream

WRITER = "r0-00000002"
MARK_BYTES = 170


def fail(message: str, error: BaseException | None) -> None:
    raise AssertionError(message) from error


def mark(number: int, offset: int = 0) -> Mark:
    path = f"/var/log/app/instance-{number:05}/requests.log"
    return Mark(path, FileId(NO_DEVICE, 10**7 + number), offset, 0x89ABCDEF, 1_700_000_000 * 10**9)


def position_after(
    made: MarkPositions, changes: list[Mark], durable: Any = None, writer: str = WRITER
) -> Any:
    """Return the position of a block with one store."""
    deferred = made.after(by_path(changes), durable)
    deferred.place(writer, 0, 1)
    return json.loads(json.dumps(deferred.value()))


def marks_in(files: OwnFiles, position: Any) -> set[Mark]:
    return set(MarkPositions(files, position, fail).marks())


def size_of(files: OwnFiles) -> int:
    return sum(len(files.read(name)) for name in files.names())


# -- what they take --


@pytest.mark.parametrize("scattered", [False, True])
def test_a_position_takes_what_changed(scattered: bool) -> None:
    """10,000 files, of which 10 grow between two blocks: the same ones, or others each time."""
    files, count, few, blocks = _CountedFiles(), 10_000, 10, 300 if scattered else 1_000
    made = MarkPositions(files, None, fail)
    position = position_after(made, [mark(n) for n in range(count)])
    sizes = [len(json.dumps(position))]
    expected = {n: mark(n) for n in range(count)}
    for block in range(1, blocks):
        start = few * block if scattered else 0
        changes = {n % count: mark(n % count, block) for n in range(start, start + few)}
        expected |= changes
        position = position_after(made, list(changes.values()), durable=position)
        sizes.append(len(json.dumps(position)))
    assert marks_in(files, position) == set(expected.values())
    full = count * MARK_BYTES
    if scattered:
        # 10, 20, 30, ... marks until they are 40,000: then they are in a copy.
        assert sum(sizes) + files.created_bytes < blocks * full / 15
        assert len(files.names()) <= 4
    else:
        assert max(sizes) < (few + 2) * MARK_BYTES
        assert sum(sizes) + files.created_bytes < blocks * (few + 2) * MARK_BYTES + 1.1 * full


def test_copies_add_a_third_where_all_files_grow() -> None:
    files, blocks = _CountedFiles(), 100
    made = MarkPositions(files, None, fail)
    position, size = None, 0
    for block in range(blocks):
        position = position_after(made, [mark(n, block) for n in range(500)], durable=position)
        size += len(json.dumps(position))
    assert files.created_bytes < size / 3 + 1.1 * 500 * MARK_BYTES
    assert len(files.names()) <= 4


def test_few_marks_are_in_the_position_alone() -> None:
    files = RecordingHost().own_files()
    made = MarkPositions(files, None, fail)
    marks = [mark(n, n) for n in range(positions.FEW_MARKS)]
    for each in marks:
        position = position_after(made, [each])
    assert position == position_from_marks(marks)
    assert files.names() == []


def test_the_changes_that_are_told_are_those_of_the_files_that_grew(tmp_path: Path) -> None:
    logs = [tmp_path / f"{n}.log" for n in range(20)]
    for log in logs:
        log.write_text("first\n")
    follower = _follower(tmp_path)
    follower.scan()
    assert len(follower.changes()) == len(logs)
    list(follower.read_round())
    assert len(follower.changes()) == len(logs)
    with logs[3].open("a") as file:
        file.write("more\n")
    list(follower.read_round())
    assert list(follower.changes()) == [str(logs[3])]
    logs[5].unlink()
    follower.scan()
    list(follower.read_round())
    assert follower.changes() == {str(logs[5]): []}
    follower.scan()
    assert follower.changes() == {}
    follower.close()


class _CountedFiles:
    """Own files in memory, with the bytes of all that were created."""

    def __init__(self) -> None:
        self._files = RecordingHost().own_files()
        self.created_bytes = 0
        self.read, self.names, self.delete = (
            self._files.read,
            self._files.names,
            self._files.delete,
        )

    def create(self, name: str, data: bytes) -> None:
        self._files.create(name, data)
        self.created_bytes += len(data)


# -- what they tell --


@given(
    st.lists(
        st.builds(
            Mark,
            path=st.text(min_size=1),
            file_id=st.builds(FileId, st.just(NO_DEVICE), st.integers(0, 2**64)),
            offset=st.integers(0, 2**62),
            crc=st.integers(0, 2**32 - 1),
            mtime_ns=st.integers(0, 2**62),
        ),
        max_size=5,
    )
)
def test_a_position_tells_marks_as_they_were(marks: list[Mark]) -> None:
    position = json.loads(json.dumps(position_from_marks(marks)))
    found = MarkPositions(RecordingHost().own_files(), position, fail).marks()
    assert by_path(found) == by_path(marks)


def test_a_position_of_many_marks_is_continued_with_a_copy() -> None:
    files = RecordingHost().own_files()
    marks = [mark(n) for n in range(300)]
    position = position_from_marks(marks)
    for number in range(9):
        marks[number] = mark(number, 7)
        made = MarkPositions(files, position, fail)
        position = position_after(made, [marks[number]], durable=position)
    assert len(position["files"]) == 8, "the first block has them all in a copy"
    assert marks_in(files, position) == set(marks)


@pytest.mark.parametrize(
    "position",
    [
        [],
        {},
        {"version": 3, "files": []},
        {"version": 2, "files": []},
        {"version": 1},
        {"version": 1, "files": [{"path": "x"}]},
        {
            "version": 1,
            "files": [{"path": "x", "inode": None, "offset": 1, "crc": 1, "mtime_ns": 1}],
        },
    ],
)
def test_any_other_position_is_refused(position: object) -> None:
    with pytest.raises(ReceiverError, match="not one of a tail receiver"):
        MarkPositions(RecordingHost().own_files(), position, fail)


@pytest.mark.parametrize("seed", range(5))
def test_the_newest_durable_position_and_the_one_before_tell_all_marks(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks come, change and go; blocks are encoded ahead; attempts end with blocks unpublished."""
    monkeypatch.setattr(positions, "FEW_MARKS", 3)
    monkeypatch.setattr(positions, "_REPEATS", 1)
    chance, files = random.Random(seed), RecordingHost().own_files()
    expected: dict[str, list[Mark]] = {}
    durable: list[tuple[Any, dict[str, list[Mark]]]] = []
    for epoch in range(30):
        if durable and chance.random() < 0.2:
            durable.pop()  # the newest block was damaged, and given up
        expected = dict(durable[-1][1]) if durable else {}
        made = MarkPositions(files, durable[-1][0] if durable else None, fail)
        encoded: list[tuple[Any, dict[str, list[Mark]]]] = []
        for block in range(chance.randrange(1, 20)):
            numbers = chance.sample(range(12), chance.randrange(1, 4))
            changes = {mark(n).path: [mark(n, epoch * 100 + block)] for n in numbers}
            for path in list(changes)[1:]:
                changes[path] *= chance.randrange(3)  # gone, or with a rotated file
            expected = {**expected, **changes}
            deferred = made.after(changes, durable[-1][0] if durable else None)
            deferred.place(f"r0-{epoch:08d}", 0, 1)
            value = json.loads(json.dumps(deferred.value()))
            encoded.append((value, {p: m for p, m in expected.items() if m}))
            while len(encoded) > chance.randrange(4):
                durable.append(encoded.pop(0))
            for position, marks in durable[-2:]:
                assert by_path(MarkPositions(files, position, fail).marks()) == marks
    assert len(files.names()) < 15


# -- damage --


def damage(files: OwnFiles, name: str) -> None:
    data = files.read(name)
    files.delete(name)
    files.create(name, data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])


@pytest.mark.parametrize("harm", [damage, lambda files, name: files.delete(name)])
def test_lines_are_read_again_where_copies_are_damaged_or_gone(
    harm: Callable[[OwnFiles, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "FEW_MARKS", 3)
    monkeypatch.setattr(positions, "_REPEATS", 1)
    files, logs = RecordingHost().own_files(), [tmp_path / f"{n}.log" for n in range(6)]
    written: dict[str, list[str]] = {log.stem: [] for log in logs}
    position: Any = None
    told: list[str] = []

    def write(*some: Path) -> None:
        for log in some:
            written[log.stem].append(f"{log.stem} {len(written[log.stem])}")
            log.write_text("".join(f"{line}\n" for line in written[log.stem]))

    def live() -> list[str]:
        nonlocal position
        made = MarkPositions(files, position, lambda message, _error: told.append(message))
        follower = _follower(tmp_path, None if position is None else made.marks())
        follower.scan()
        found = [batch["value"].to_pylist() for batch in follower.read_round()]
        changes = [mark for marks in follower.changes().values() for mark in marks]
        position = position_after(made, changes, durable=position)
        follower.close()
        return list(itertools.chain(*found))

    for _ in range(3):
        write(*logs)
        assert len(live()) == len(logs)
        write(logs[0])
        assert live() == written["0"][-1:]
    newest, _before = position["copies"]

    harm(files, newest)
    assert live() == [written[log.stem][-1] for log in logs[1:]], "since the copy before"
    assert len(told) == 1
    assert newest in told[0]
    assert "the copy before it is used" in told[0]

    (only,) = position["copies"]
    harm(files, only)
    assert live() == list(itertools.chain(*written.values()))
    assert "no copy is left" in told[1]
    assert live() == []
    assert len(told) == 2


def test_a_copy_that_cannot_be_read_now_is_no_reason_to_read_all_again() -> None:
    class Failing(_CountedFiles):
        def __init__(self) -> None:
            super().__init__()
            self.fails = False

        def get(self, name: str) -> bytes:
            if self.fails:
                raise StorageError("the disk is slow", operation="read", path=name)
            return self._files.read(name)

    files = Failing()
    files.read = files.get
    position = position_after(MarkPositions(files, None, fail), [mark(n) for n in range(300)])
    files.fails = True
    with pytest.raises(StorageError):
        MarkPositions(files, position, fail)


def test_a_copy_that_cannot_be_deleted_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(positions, "FEW_MARKS", 1)
    monkeypatch.setattr(positions, "_REPEATS", 1)
    files = _CountedFiles()
    delete, files.delete = files.delete, _refuse
    made, position = MarkPositions(files, None, fail), None
    for block in range(8):
        position = position_after(made, [mark(0, block), mark(1, block)], durable=position)
    assert len(files.names()) == 8
    assert "tried again" in caplog.text
    files.delete = delete
    position_after(made, [mark(0, 9), mark(1, 9)], durable=position)
    assert len(files.names()) == 3


def _refuse(name: str) -> None:
    raise StorageError("the disk is read-only", operation="delete", path=name)


# -- kills and zombies, with a journal --


class _Ending(Syscalls):
    """Ends the process, as far as the disk can tell, before a call: it and all later ones fail."""

    def __init__(self) -> None:
        self.countdown: Iterator[int] | None = None
        self.has_ended = False

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if callable(value) and not name.startswith("_") and self.countdown is not None:
            self.has_ended = self.has_ended or next(self.countdown, 0) == 0
            if self.has_ended:
                raise OSError(errno.EIO, "this process is dead")
        return value


class _Attempt:
    """What runs a tail over a journal: a writer, the positions and the followed files."""

    def __init__(self, root: Path, logs: Path, calls: Syscalls | None = None) -> None:
        stream = open_stream(LocalStorage(str(root), syscalls=calls or Syscalls()))
        self.writer = JournalWriter(stream, "r0", policy=CommitPolicy(spacing_ms=0))
        self.files = StoredFiles(stream.storage, "clicks/receivers/r0")
        position = self.writer.position
        self.positions = MarkPositions(self.files, position, fail)
        marks = None if position is None else self.positions.marks()
        self.follower = _follower(logs, marks)

    def store_round(self) -> None:
        """Look, and store what is there in a block for each file."""
        self.follower.scan()
        for batch in self.follower.read_round():
            changes = self.follower.changes()
            position = self.positions.after(changes, self.writer.position)
            self.writer.append_all(batch, position=position)
            self.writer.flush()

    def abandon(self) -> None:
        self.follower.close()
        self.writer.abandon()


def _follower(logs: Path, marks: list[Mark] | None = None) -> Follower:
    options = FollowOptions((f"{logs}/*.log",), True, rotate_wait_ms=0, max_line_bytes=1_000)
    return Follower(options, marks, fail)


class _Logs:
    """Four logs that grow and rotate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.written: list[str] = []

    def grow(self) -> None:
        turn = len(self.written)
        for number in range(4):
            log = self.folder / f"{number}.log"
            if turn % 3 == number and log.exists():
                os.replace(log, self.folder / f"{number}.log.{turn}")
            self.written.append(f"line {len(self.written)}")
            with log.open("a") as file:
                file.write(self.written[-1] + "\n")


@pytest.fixture
def copies_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "FEW_MARKS", 2)
    monkeypatch.setattr(positions, "_REPEATS", 1)


@pytest.mark.usefixtures("copies_all_the_time")
def test_each_line_is_stored_once_whatever_step_a_kill_comes_before(tmp_path: Path) -> None:
    logs = _Logs(tmp_path / "logs")
    logs.grow()
    first = _Attempt(tmp_path / "journal", logs.folder)
    first.store_round()  # what rotates before the first position is history
    first.abandon()
    with_copies = 0
    for kill_at in itertools.count(1):
        calls = _Ending()
        attempt = _Attempt(tmp_path / "journal", logs.folder, calls)
        with_copies += len(attempt.files.names()) > 0
        calls.countdown = iter(range(kill_at - 1, -1, -1))
        try:
            for _ in range(2):
                logs.grow()
                attempt.store_round()
        except PenstockError:
            assert calls.has_ended
        attempt.abandon()
        if not calls.has_ended:
            break
    last = _Attempt(tmp_path / "journal", logs.folder)
    last.store_round()
    last.writer.close()
    last.abandon()
    found = read_all(open_stream(tmp_path / "journal"))
    assert sorted(found) == sorted(logs.written)
    assert kill_at > 50, "a block and a copy take more calls than that"
    assert with_copies > 40
    assert len(last.files.names()) <= 6


@pytest.mark.parametrize("slept_after", [0, 1, 4])
def test_a_zombie_harms_no_copy_of_its_successor(
    slept_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "FEW_MARKS", 0)
    monkeypatch.setattr(positions, "_REPEATS", 0)  # a copy for each block
    logs, journal = _Logs(tmp_path / "logs"), tmp_path / "journal"
    logs.grow()
    first = _Attempt(journal, logs.folder)
    first.store_round()
    first.abandon()

    zombie = _Attempt(journal, logs.folder)
    for _ in range(slept_after):
        logs.grow()
        zombie.store_round()
    logs.grow()
    successor = _Attempt(journal, logs.folder)
    successor.store_round()
    logs.grow()
    before = set(successor.files.names())
    with pytest.raises(FencedError):
        zombie.store_round()
    zombie.abandon()
    after = set(successor.files.names())
    assert [name[:17] for name in after - before] == ["marks-r0-00000001"], "the zombie's copy"
    assert before - after <= {name for name in before if "r0-00000002" not in name}
    assert set(successor.writer.position["copies"]) <= after
    successor.store_round()
    successor.writer.close()
    successor.abandon()

    last = _Attempt(journal, logs.folder)
    logs.grow()
    last.store_round()
    last.writer.close()
    last.abandon()
    assert not any("r0-00000001" in name for name in last.files.names())
    found = read_all(open_stream(journal))
    assert sorted(found) == sorted(logs.written)
