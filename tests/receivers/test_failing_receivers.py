"""Receivers that hang, raise, and die: reported, told to listeners, and brought back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import JournalFullError, ReceiverError
from penstock.journal import Bounds, JournalStream, RecordFormat
from penstock.receivers import (
    Command,
    Receiver,
    ReceiverSettings,
    Status,
    give_command,
    read_status,
    uncaught_errors_to,
)
from penstock.storage import open_storage
from penstock.streaming.core.events import (
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
)
from penstock.streaming.engine.receiver_events import ReceiverProgress
from tests.receivers.supervised import HASTY, RUN, command_stop, supervise
from tests.waiting import WAIT_S, eventually


class Acting(Receiver):
    """Does what a test says, by the number of the start."""

    def __init__(
        self,
        on_start: Callable[[int], object] = lambda n: None,
        on_stop: Callable[[int], object] = lambda n: None,
    ) -> None:
        self.starts = self.stops = 0
        self._on_start = on_start
        self._on_stop = on_stop

    def onStart(self) -> None:
        self.starts += 1
        self._on_start(self.starts)

    def onStop(self) -> None:
        self.stops += 1
        self._on_stop(self.stops)


class Running:
    """A supervisor in a thread, and what its status said, as listeners would be told."""

    def __init__(
        self, folder: Path, receiver: Receiver, settings: ReceiverSettings = HASTY
    ) -> None:
        storage = open_storage(folder / "journal")
        self.stream = JournalStream.create(storage, "s", RecordFormat("string"))
        give_command(self.stream, "r0", RUN, Command())
        self.supervisor = supervise(self.stream, receiver, settings)
        self.raised: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.supervisor.run()
        except BaseException as e:
            self.raised.append(e)

    def stop(self) -> list[BaseException]:
        command_stop(self.stream)
        return self.wait()

    def wait(self) -> list[BaseException]:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the supervisor did not end"
        return self.raised

    def status(self) -> Status:
        status = read_status(self.stream, "r0")
        assert status is not None
        return status


def test_a_hung_start_is_reported_and_ends_the_task(tmp_path: Path) -> None:
    release = threading.Event()
    settings = replace(HASTY, start_timeout_ms=200)
    running = Running(tmp_path, Acting(lambda n: release.wait(WAIT_S)), settings)
    (raised,) = running.wait()
    release.set()
    assert isinstance(raised, ReceiverError)
    assert "onStart hangs" in str(raised)
    status = running.status()
    assert (status.state, status.errors) == ("stopped", 1)
    assert "onStart hangs" in str(status.last_error)
    events = ReceiverProgress(0, "Acting-0").see(status)
    assert [type(event) for event in events] == [StreamingListenerReceiverError]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_stop_that_fails_or_hangs_is_reported_and_the_writer_sealed(
    tmp_path: Path, hangs: bool
) -> None:
    release = threading.Event()

    def on_stop(n: int) -> None:
        if hangs:
            release.wait(WAIT_S)
        raise OSError("no way to stop")

    receiver = Acting(on_stop=on_stop)
    settings = replace(HASTY, stop_timeout_ms=200) if hangs else HASTY
    running = Running(tmp_path, receiver, settings)
    assert eventually(lambda: not receiver.isStopped())
    receiver.store("a")
    assert running.stop() == []
    release.set()
    status = running.status()
    assert (status.state, status.errors) == ("stopped", 1)
    assert str(status.last_error).startswith("onStop failed")
    (writer,) = running.stream.writers()
    newest = running.stream.newest(writer)
    assert newest is not None
    assert newest.sealed
    assert newest.start_offset == 1


def test_a_thread_that_dies_restarts_the_receiver_with_a_listener_event(tmp_path: Path) -> None:
    def on_start(n: int) -> None:
        if n == 1:
            threading.Thread(target=lambda: 1 // 0, name="reader").start()

    receiver = Acting(on_start)
    running = Running.__new__(Running)
    with uncaught_errors_to(
        lambda message, error: running.supervisor.thread_failed(message, error)
    ):
        Running.__init__(running, tmp_path, receiver)
        assert eventually(lambda: receiver.starts == 2)
        assert running.stop() == []
    assert running.status().errors == 1
    error = "thread reader failed: integer division or modulo by zero"
    assert running.status().last_error == error


def test_errors_and_restarts_become_listener_events(tmp_path: Path) -> None:
    receiver = Acting()
    running = Running(tmp_path, receiver)
    progress = ReceiverProgress(0, "Acting-0")
    assert eventually(lambda: receiver.starts == 1 and running.status().state == "started")
    kinds = [type(event) for event in progress.see(running.status())]
    receiver.reportError("slow source")
    kinds += [type(event) for event in progress.see(running.status())]
    receiver.restart("connection lost", OSError("reset"), delay_ms=60_000)
    assert eventually(lambda: running.status().state == "restarting")
    kinds += [type(event) for event in progress.see(running.status())]
    assert running.status().last_error == "connection lost: reset"
    assert kinds == [
        StreamingListenerReceiverStarted,
        StreamingListenerReceiverError,
        StreamingListenerReceiverError,
        StreamingListenerReceiverStopped,
    ]
    assert running.stop() == []


def test_a_stop_with_an_error_is_reported(tmp_path: Path) -> None:
    receiver = Acting()
    running = Running(tmp_path, receiver)
    assert eventually(lambda: receiver.starts == 1)
    receiver.stop("the source is gone for good", OSError("404"))
    assert running.wait() == []
    assert running.status().last_error == "the source is gone for good: 404"
    assert running.status().state == "stopped"


class Filling(Acting):
    """Stores from a thread until a store raises."""

    def __init__(self) -> None:
        super().__init__(self._begin, self._end)
        self.errors: list[BaseException] = []
        self.stored = 0

    def _begin(self, n: int) -> None:
        self._thread = threading.Thread(target=self._fill)
        self._thread.start()

    def _end(self, n: int) -> None:
        self._thread.join()

    def _fill(self) -> None:
        try:
            while not self.isStopped():
                self.store("x" * 50_000)
                self.stored += 1
        except JournalFullError as e:
            self.errors.append(e)


BOUNDED = replace(HASTY, bounds=Bounds(max_bytes=1 << 20))


def test_a_store_that_waits_for_room_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    receiver = Filling()
    running = Running(tmp_path, receiver, BOUNDED)
    assert eventually(lambda: _waits(receiver))
    assert running.stop() == []
    assert [type(e) for e in receiver.errors] == [JournalFullError]
    assert running.status().state == "stopped"
    assert _bytes(running) <= 1 << 20


def test_a_full_journal_ends_the_receiver_that_is_to_fail(tmp_path: Path) -> None:
    receiver = Filling()
    running = Running(tmp_path, receiver, replace(BOUNDED, when_full="fail"))
    (raised,) = running.wait()
    assert isinstance(raised, JournalFullError)
    assert [type(e) for e in receiver.errors] == [JournalFullError]
    assert "no room" in str(running.status().last_error)
    (writer,) = running.stream.writers()
    newest = running.stream.newest(writer)
    assert newest is not None
    assert newest.sealed


def _bytes(running: Running) -> int:
    return sum(b.size for w in running.stream.writers() for b in running.stream.blocks(w))


def _waits(receiver: Filling) -> bool:
    before = receiver.stored
    return before > 0 and not eventually(lambda: receiver.stored > before, within_s=0.3)
