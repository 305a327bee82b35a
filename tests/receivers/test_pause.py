"""A receiver that stays open while the journal cannot be written: onPause and onResume."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError, WriterBrokenError
from penstock.journal import JournalStream, RecordFormat
from penstock.receivers import Command, Receiver, give_command, read_status
from penstock.storage import open_storage
from tests.receivers.supervised import RUN, commanded
from tests.storage.faulty_storage import FaultyStorage
from tests.waiting import WAIT_S, eventually


class Open(Receiver):
    """Tells what is called; stays open where it is told to."""

    def __init__(self, stays_open: bool = True) -> None:
        self.calls: queue.Queue[str] = queue.Queue()
        self.stays_open = stays_open
        self.failing: set[str] = set()

    def onStart(self) -> None:
        self.listeningAt = "test://here"
        self.say("start")

    def onStop(self) -> None:
        self.say("stop")

    def onPause(self, error: PenstockError) -> bool:
        assert self.isStopped()
        self.say("pause")
        return self.stays_open

    def onResume(self) -> None:
        self.say("resume")

    def say(self, call: str) -> None:
        self.calls.put(call)
        if call in self.failing:
            self.failing.discard(call)
            raise OSError(call)

    def heard(self, *calls: str) -> None:
        assert [self.calls.get(timeout=WAIT_S) for _ in calls] == list(calls)


@pytest.fixture
def storage(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(tmp_path))


@contextmanager
def running(storage: FaultyStorage, receiver: Open) -> Iterator[JournalStream]:
    stream = JournalStream.create(storage, "clicks", RecordFormat("string"))
    with commanded(stream, receiver) as raised:
        receiver.heard("start")
        yield stream
    # A stop while the journal cannot be written ends with the writer's error.
    assert all(isinstance(error, WriterBrokenError) for error in raised), raised


def break_writer(storage: FaultyStorage, receiver: Open) -> None:
    storage.fail("create", path="*.parquet")
    receiver.store("lost", ack=lambda: pytest.fail("acked"))


def test_it_is_paused_and_resumed_and_stopped_once(storage: FaultyStorage) -> None:
    receiver, acked = Open(), threading.Event()
    with running(storage, receiver):
        break_writer(storage, receiver)
        receiver.heard("pause", "resume")
        receiver.store("kept", ack=acked.set)
        assert acked.wait(WAIT_S)
        break_writer(storage, receiver)
        receiver.heard("pause", "resume")
    receiver.heard("stop")
    assert receiver.calls.empty()


def test_it_stays_paused_while_no_writer_can_be_opened(storage: FaultyStorage) -> None:
    receiver = Open()
    with running(storage, receiver) as stream:
        storage.fill_up()
        receiver.store("lost")
        receiver.heard("pause")
        # Its status cannot be written either; attempts to seal the broken writer are what is seen.
        assert eventually(lambda: publishes(storage) >= 5)
        assert receiver.calls.empty()
        storage.free_up()
        receiver.heard("resume")
        assert eventually(lambda: state(stream) == "started")
    receiver.heard("stop")


def publishes(storage: FaultyStorage) -> int:
    operations = list(storage.operations)
    return sum(each.kind == "create" and each.path.endswith(".parquet") for each in operations)


def state(stream: JournalStream) -> str | None:
    status = read_status(stream, "r0")
    return None if status is None else status.state


def test_it_is_stopped_while_it_is_paused(storage: FaultyStorage) -> None:
    receiver = Open()
    with running(storage, receiver) as stream:
        storage.fail("create", path="*.parquet")
        for attempt in range(1, 100):
            storage.fail("create", nth=attempt, path="*_writer.json")
        receiver.store("lost")
        receiver.heard("pause")
        give_command(stream, "r0", RUN, Command(stop=True))
        receiver.heard("stop")


def test_one_that_does_not_stay_open_is_stopped_and_started(storage: FaultyStorage) -> None:
    receiver = Open(stays_open=False)
    with running(storage, receiver):
        break_writer(storage, receiver)
        receiver.heard("pause", "stop", "start")
    receiver.heard("stop")


@pytest.mark.parametrize(
    ("failing", "calls"),
    [("pause", ["pause", "stop", "start"]), ("resume", ["pause", "resume", "stop", "start"])],
)
def test_what_fails_to_pause_or_to_resume_is_started_anew(
    storage: FaultyStorage, failing: str, calls: list[str]
) -> None:
    receiver = Open()
    receiver.failing.add(failing)
    with running(storage, receiver):
        break_writer(storage, receiver)
        receiver.heard(*calls)
    receiver.heard("stop")


def test_its_status_tells_where_it_listens(storage: FaultyStorage) -> None:
    def listening_at(stream: JournalStream) -> Any:
        status = read_status(stream, "r0")
        return status is not None and status.listening_at

    with running(storage, Open()) as stream:
        assert eventually(lambda: listening_at(stream) == "test://here")
