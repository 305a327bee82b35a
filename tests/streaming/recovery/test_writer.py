"""CheckpointWriter: what is on disk and what is logged, also when storage fails."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.storage import Storage, open_storage
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.recovery import writer as writer_module
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.files import get_checkpoint_files
from penstock.streaming.recovery.pickling import pickle_graph
from penstock.streaming.recovery.recreate import CheckpointReader
from penstock.streaming.recovery.writer import CheckpointWriter
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import WAIT_S, eventually

GRAPH = pickle_graph(DStreamGraph(1000))


def checkpoint_at(time_ms: int, pending: tuple[int, ...] = ()) -> Checkpoint:
    conf = (("spark.app.name", "x"),)
    return Checkpoint("local", "x", (), GRAPH, time_ms, "/ck", 1000, pending, conf)


class Writing:
    """A writer on a storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.writer = CheckpointWriter(storage, "lz4")

    def submit(self, time_ms: int, *pending: int) -> None:
        self.writer.write(checkpoint_at(time_ms, pending))

    def write(self, time_ms: int, *pending: int) -> None:
        """Submit one and wait until it is written."""
        self.submit(time_ms, *pending)
        self.writer.wait_written()
        assert not self.writer.failed

    def names(self) -> list[str]:
        return [file.name for file in get_checkpoint_files(self.storage)]

    def newest(self) -> Checkpoint:
        read = CheckpointReader(self.storage).read()
        assert read is not None
        return read


@pytest.fixture(params=["local", "remote"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(tmp_path)
    return open_storage(f"memory://graph-checkpoints{tmp_path}")


@pytest.fixture
def writing(storage: Storage) -> Iterator[Writing]:
    writing = Writing(FaultyStorage(storage))
    yield writing
    writing.writer.stop()


def test_ten_are_kept(writing: Writing) -> None:
    for time_ms in range(1000, 13000, 1000):
        writing.write(time_ms)
    assert writing.names() == [f"checkpoint-{ms}" for ms in range(3000, 13000, 1000)]


def test_of_two_at_one_time_the_latest_written_wins(writing: Writing) -> None:
    writing.write(1000, 1000)
    writing.write(1000)
    assert writing.names() == ["checkpoint-1000"]
    assert writing.newest().pending_times == ()


def test_a_batch_done_after_a_newer_was_planned_writes_what_is_read_back(writing: Writing) -> None:
    writing.write(2000, 1000, 2000)
    writing.write(1000, 2000)
    assert writing.names() == ["checkpoint-2000"]
    assert writing.newest().pending_times == (2000,)


def test_also_when_the_newer_one_is_of_the_run_before(writing: Writing) -> None:
    writing.write(2000, 1000, 2000)
    writing.writer.stop()
    after = Writing(writing.storage)
    after.write(1000, 2000)
    after.writer.stop()
    assert after.names() == ["checkpoint-2000"]
    assert after.newest().pending_times == (2000,)


def test_backups_that_a_kill_left_are_deleted(storage: Storage) -> None:
    storage.create("checkpoint-500.bk", b"torn")
    writing = Writing(storage)
    writing.write(1000)
    writing.writer.stop()
    assert writing.names() == ["checkpoint-1000"]


def test_those_that_wait_are_written_as_one(storage: Storage) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(operation: Operation) -> None:
        if operation.kind == "create":
            reached.set()
            assert go_on.wait(WAIT_S)

    slow = FaultyStorage(storage)
    writing = Writing(slow)
    slow.before = hold
    writing.submit(1000, 1000)
    assert reached.wait(WAIT_S)
    writing.submit(1000)
    writing.submit(2000, 2000)
    writing.submit(2000)
    go_on.set()
    writing.writer.stop()
    created = [o.path for o in slow.operations if o.kind == "create"]
    assert created == [f"checkpoint-{n}" for n in ("1000.bk", "1000", "2000.bk", "2000")]


@pytest.mark.parametrize("path", ["*.bk", "*-1000"])
@pytest.mark.parametrize("error", [None, MemoryError("storage"), ValueError("driver")])
def test_a_write_is_tried_three_times(
    writing: Writing, path: str, error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(writing.storage, FaultyStorage)
    for nth in (1, 2):
        writing.storage.fail("create", path=path, nth=nth, error=error)
    writing.write(1000)
    assert writing.names() == ["checkpoint-1000"]
    uri = writing.storage.uri("checkpoint-1000")
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        f"Error in attempt {attempt} of writing checkpoint to {uri}" for attempt in (1, 2)
    ]


def test_a_write_that_fails_three_times_is_given_up_and_the_next_is_written(
    writing: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(writing.storage, FaultyStorage)
    writing.write(1000)
    writing.storage.fill_up()
    writing.submit(2000)
    uri = writing.storage.uri("checkpoint-2000")
    skipped = f"Could not write checkpoint for time 2000 ms to file '{uri}'"
    assert eventually(lambda: skipped in caplog.messages)
    assert writing.newest().checkpoint_time_ms == 1000
    writing.storage.free_up()
    writing.write(3000)
    assert writing.names() == ["checkpoint-1000", "checkpoint-3000"]


def test_a_deletion_that_fails_is_tried_again(
    writing: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(writing.storage, FaultyStorage)
    writing.storage.fail("delete", path="*.bk")
    writing.write(1000)
    assert eventually(lambda: len(writing.names()) == 2)
    assert f"Error deleting {writing.storage.uri('checkpoint-1000.bk')}" in caplog.messages
    writing.write(2000)
    assert eventually(lambda: writing.names() == ["checkpoint-1000", "checkpoint-2000"])


def test_no_error_ends_the_writer(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Checkpoint, codec: str) -> bytes:
        raise RecursionError("as ordered")

    with monkeypatch.context() as broken:
        broken.setattr(Checkpoint, "serialize", fail)
        writing.submit(1000)
        assert eventually(lambda: writing.writer.failed)
    assert "Could not write checkpoint for time 1000 ms" in caplog.text
    writing.write(2000)
    assert not writing.writer.failed
    assert writing.names() == ["checkpoint-2000"]


def test_what_is_logged(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, writer_module.__name__)
    writing = Writing(storage)
    for time_ms in range(1000, 12000, 1000):
        writing.write(time_ms)
    writing.writer.stop()
    writing.submit(12000)
    uri = storage.uri("checkpoint-11000")
    said = [f"{r.levelname} {r.getMessage()}" for r in caplog.records]
    # "Submitted" is said by the thread of batches, and may come after what its writer says.
    assert "INFO Submitted checkpoint of time 11000 ms writer queue" in said
    said = [line for line in said if "Submitted" not in line]
    expected = [
        rf"INFO Saving checkpoint for time 11000 ms to file '{uri}'",
        rf"INFO Deleting {storage.uri('checkpoint-1000')}",
        rf"INFO Checkpoint for time 11000 ms saved to file '{uri}', took \d+ bytes and \d+ ms",
        r"INFO CheckpointWriter executor terminated\? true, waited for \d+ ms\.",
        r"ERROR Could not submit checkpoint task to the thread pool executor",
    ]
    assert len(said) == 2 * 11 + 1 + 2
    for line, pattern in zip(said[-5:], expected, strict=True):
        assert re.fullmatch(pattern, line)
    assert "checkpoint-12000" not in writing.names()


def test_stop_writes_what_was_submitted_and_may_be_repeated(storage: Storage) -> None:
    writing = Writing(storage)
    writing.submit(1000)
    writing.writer.stop()
    writing.writer.stop()
    assert writing.names() == ["checkpoint-1000"]


def test_stop_gives_up_on_a_storage_that_hangs(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, writer_module.__name__)
    monkeypatch.setattr(writer_module, "_PATIENCE_S", 0.05)
    hanging, go_on = threading.Event(), threading.Event()

    def hang(operation: Operation) -> None:
        if operation.kind == "create":
            hanging.set()
            assert go_on.wait(WAIT_S)

    slow = FaultyStorage(storage)
    writing = Writing(slow)
    slow.before = hang
    writing.submit(1000)
    assert hanging.wait(WAIT_S)
    writing.writer.stop()
    assert any(m.startswith("CheckpointWriter executor terminated? false") for m in caplog.messages)
    go_on.set()
    assert eventually(lambda: not writing.writer._thread.is_alive())
    assert writing.names() == ["checkpoint-1000.bk"]  # the step that hung, and none after it


@pytest.mark.parametrize("step", range(4))
def test_what_a_run_gave_up_ends_before_the_next_one_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(writer_module, "_PATIENCE_S", 0.05)
    calls = Syscalls()
    writing = Writing(LocalStorage(str(tmp_path), syscalls=calls))
    writing.write(1000)
    hanging, go_on = threading.Event(), threading.Event()
    usual, steps = calls.fsync, iter(range(100))

    def hang(fd: int) -> None:
        if next(steps) == step:
            hanging.set()
            assert go_on.wait(WAIT_S)
        usual(fd)

    monkeypatch.setattr(calls, "fsync", hang)
    writing.submit(2000)
    assert hanging.wait(WAIT_S)
    writing.writer.stop()
    for _ in range(2):
        with pytest.raises(StorageError, match="of a stopped run of this process hangs"):
            CheckpointWriter(writing.storage, "lz4")
    go_on.set()
    assert eventually(lambda: not writing.writer._thread.is_alive())
    there = ["checkpoint-1000"] + ["checkpoint-2000"] * (step > 1) + ["checkpoint-2000.bk"]
    assert sorted(path.name for path in tmp_path.iterdir()) == there
    CheckpointWriter(writing.storage, "lz4").stop()
