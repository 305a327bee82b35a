"""The supervisor before a real journal: restarts, broken and fenced writers, commands, orphans."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FencedError, ReceiverError, UnsharedPathError
from penstock.journal import JournalStream, JournalWriter, RecordFormat
from penstock.receivers import (
    Command,
    End,
    Receiver,
    ReceiverSupervisor,
    ReceiverTask,
    backoff_ms,
    claim_run,
    give_command,
    read_status,
)
from penstock.receivers.control import Status, write_status
from penstock.storage import open_storage
from tests.journal.helpers import read_all
from tests.receivers.supervised import (
    COMMAND_FILE,
    HASTY,
    RUN,
    command_stop,
    commanded,
    running,
    supervise,
)
from tests.storage.faulty_storage import FaultyStorage
from tests.waiting import WAIT_S, eventually


class Scripted(Receiver):
    """Counts its starts and stops; a test stores through it."""

    def __init__(self, fail_starts: int = 0) -> None:
        self.starts: list[Any] = []
        self.stops = 0
        self.fail_starts = fail_starts
        self.started = threading.Semaphore(0)

    def onStart(self) -> None:
        self.starts.append(self.lastPosition())
        if len(self.starts) <= self.fail_starts:
            raise OSError("no connection")
        self.started.release()

    def onStop(self) -> None:
        self.stops += 1

    def wait_started(self) -> None:
        assert self.started.acquire(timeout=WAIT_S), "the receiver was not started in time"


@pytest.fixture
def stream(tmp_path: Path) -> JournalStream:
    storage = open_storage(tmp_path / "journal")
    stream = JournalStream.create(storage, "clicks", RecordFormat("string"))
    give_command(stream, "r0", RUN, Command())
    return stream


def test_a_stop_command_publishes_what_is_buffered_and_seals(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        receiver.store("a", position=1)
        command_stop(stream)
    assert raised == []
    assert read_all(stream) == ["a"]
    assert receiver.stops == 1
    status = read_status(stream, "r0")
    assert status is not None
    assert status.state == "stopped"
    assert [stream.newest(writer).sealed for writer in stream.writers()] == [True]  # type: ignore[union-attr]


def test_restart_continues_after_everything_that_was_stored(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        receiver.store("a", position={"at": 1})
        receiver.restart("connection lost")
        receiver.wait_started()
        receiver.store("b", position={"at": 2})
        command_stop(stream)
    assert raised == []
    assert receiver.starts == [None, {"at": 1}]
    assert receiver.stops == 2
    assert read_all(stream) == ["a", "b"]
    assert len(stream.writers()) == 1  # a restart needs no new writer


def test_failing_start_is_tried_again(stream: JournalStream) -> None:
    receiver = Scripted(fail_starts=2)
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        status = read_status(stream, "r0")
        command_stop(stream)
    assert raised == []
    assert len(receiver.starts) == 3
    assert status is not None
    assert status.errors == 2
    assert status.last_error == "onStart failed: no connection"


def test_an_error_that_the_message_quotes_is_not_said_again(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)):
        receiver.wait_started()
        receiver.reportError("cannot read /logs/a: not permitted", OSError("not permitted"))
        status = read_status(stream, "r0")
        command_stop(stream)
    assert status is not None
    assert status.last_error == "cannot read /logs/a: not permitted"


def test_broken_writer_is_replaced_and_loses_nothing_acked(tmp_path: Path) -> None:
    faulty = FaultyStorage(open_storage(tmp_path / "journal"))
    stream = JournalStream.create(faulty, "clicks", RecordFormat("string"))
    give_command(stream, "r0", RUN, Command())
    receiver = Scripted()
    acked: list[str] = []
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        receiver.store("a", position=1, ack=lambda: acked.append("a"))
        receiver.store(["b"], position=2)
        faulty.fill_up()
        receiver.store("c", position=3, ack=lambda: acked.append("c"))
        assert eventually(lambda: receiver.isStopped()), "the disk-full publish went unnoticed"
        faulty.free_up()
        receiver.wait_started()
        receiver.store("c", position=3, ack=lambda: acked.append("c"))
        command_stop(stream)
    assert raised == []
    assert receiver.starts == [None, 2]
    assert acked == ["a", "c"]
    assert read_all(stream) == ["a", "b", "c"]
    assert len(stream.writers()) == 2


def test_fenced_receiver_ends_and_publishes_nothing_more(stream: JournalStream) -> None:
    receiver = Scripted()
    acked: list[str] = []
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        receiver.store(["a"])
        successor = JournalWriter(stream, "r0")
        receiver.store("late", ack=lambda: acked.append("late"))
    successor.close()
    assert [type(e) for e in raised] == [FencedError]
    assert acked == []
    assert read_all(stream) == ["a"]


def test_a_later_attempts_status_stands_and_ends_this_one(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        later = Status(RUN, "r0-00000007", "started", "elsewhere", 7, changed_ms=0)
        write_status(stream, "r0", later)
        receiver.reportError("woken late")
    assert [type(e) for e in raised] == [FencedError]
    assert read_status(stream, "r0") == later


@pytest.mark.parametrize("by_an_earlier_attempt", [True, False])
def test_a_status_that_is_not_its_own_is_written_again(
    stream: JournalStream, by_an_earlier_attempt: bool
) -> None:
    JournalWriter(stream, "r0").close()  # epoch 0
    receiver = Scripted()
    with running(supervise(stream, receiver)):
        receiver.wait_started()
        if by_an_earlier_attempt:
            stopped = Status(RUN, "r0-00000000", "stopped", "elsewhere", 7, changed_ms=0)
            write_status(stream, "r0", stopped)
        else:
            stream.storage.delete("lines/control/r0.status.json")
        assert eventually(lambda: says(stream, "r0-00000001"))
        give_command(stream, "r0", RUN, Command(stop=True))


def says(stream: JournalStream, writer: str) -> bool:
    """Whether the status is of that writer."""
    status = read_status(stream, "r0")
    return status is not None and status.writer == writer


def test_a_later_run_ends_the_receiver(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        claim_run(stream, "r0", "2" * 32, Command())
    assert raised == []


@pytest.mark.parametrize("command", [Command(rate=0.01), Command(stop=True)], ids=["rate", "stop"])
def test_commands_of_an_earlier_run_do_nothing(stream: JournalStream, command: Command) -> None:
    receiver = Scripted()
    later = claim_run(stream, "r0", "2" * 32, Command())
    ends: list[End] = []
    supervisor = ReceiverSupervisor(ReceiverTask(receiver, stream, "r0", later, HASTY), lambda: 1)
    thread = threading.Thread(target=lambda: ends.append(supervisor.run()))
    thread.start()
    receiver.wait_started()
    with pytest.raises(FencedError):
        give_command(stream, "r0", RUN, command)
    receiver.store(["a"])
    receiver.store(["b"])  # would take 100 s at the earlier run's rate
    assert thread.is_alive()
    give_command(stream, "r0", later, Command(stop=True))
    thread.join(WAIT_S)
    assert ends == ["commanded"]
    assert read_all(stream) == ["a", "b"]


def test_a_receiver_of_an_earlier_run_does_not_begin(stream: JournalStream) -> None:
    claim_run(stream, "r0", "2" * 32, Command())
    receiver = Scripted()
    assert supervise(stream, receiver).run() == "superseded"
    assert (receiver.starts, stream.writers()) == ([], [])


def test_one_failing_read_of_its_command_ends_no_receiver(tmp_path: Path) -> None:
    faulty = FaultyStorage(open_storage(tmp_path / "journal"))
    stream = JournalStream.create(faulty, "clicks", RecordFormat("string"))
    receiver = Scripted()
    with commanded(stream, receiver) as raised:
        receiver.wait_started()
        for _ in range(3):
            faulty.fail("read", path=f"clicks/control/{COMMAND_FILE}")
            before = len(faulty.operations)
            assert eventually(lambda: len(faulty.operations) > before + 10)  # noqa: B023
        receiver.store(["a"])
    assert raised == []
    assert (len(receiver.starts), read_all(stream)) == (1, ["a"])


def test_receiver_whose_executor_is_gone_ends(stream: JournalStream) -> None:
    parents = iter([1])
    receiver = Scripted()
    with running(supervise(stream, receiver, parent=lambda: next(parents, 0))) as raised:
        receiver.wait_started()
    assert [type(e) for e in raised] == [ReceiverError]


ORPHAN = """
import os, sys, time
import pyspark.daemon
from penstock.errors import ReceiverError
from penstock.receivers import ReceiverTask, run_receiver
from penstock.journal import JournalStream
from penstock.storage import open_storage
from tests.receivers.supervised import HASTY, RUN
from tests.receivers.test_supervisor import Scripted

os.setpgid(0, 0)  # as Spark's daemon does
if os.fork():
    os._exit(0)
while os.getppid() == os.getpgrp():
    time.sleep(0.01)
stream = JournalStream.open(open_storage(sys.argv[1]), "clicks")
try:
    run_receiver(ReceiverTask(Scripted(), stream, "r0", RUN, HASTY))
except ReceiverError as error:
    print(error.message)
"""


def test_a_receiver_whose_executor_died_before_it_began_ends(
    stream: JournalStream, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", ORPHAN, str(tmp_path / "journal")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert ended.stdout == "the executor of this receiver died\n", ended.stderr


def test_receiver_that_stops_itself_seals(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        receiver.store("last")
        receiver.stop("end of data")
    assert raised == []
    assert read_all(stream) == ["last"]


def test_a_command_that_is_not_seen_names_the_unshared_path(stream: JournalStream) -> None:
    stream.storage.delete(f"clicks/control/{COMMAND_FILE}")
    with pytest.raises(UnsharedPathError, match="cannot see its command"):
        supervise(stream, Scripted()).run()


def test_a_command_that_is_gone_is_none_to_stop(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        stream.storage.delete(f"clicks/control/{COMMAND_FILE}")
        assert eventually(lambda: bool(raised))
    assert isinstance(raised[0], ReceiverError)
    assert "the command file of this receiver is gone" in str(raised[0])


def test_stop_during_back_off_ends_at_once(stream: JournalStream) -> None:
    receiver = Scripted()
    with running(supervise(stream, receiver)) as raised:
        receiver.wait_started()
        receiver.restart("wait long", None, delay_ms=3_600_000)
        command_stop(stream)
    assert raised == []
    assert len(receiver.starts) == 1


@pytest.mark.parametrize(
    ("failures", "expected_ms"), [(1, 2000), (2, 4000), (4, 16000), (5, 30000), (99, 30000)]
)
def test_backoff_doubles_up_to_half_a_minute(failures: int, expected_ms: int) -> None:
    assert backoff_ms(failures, 2000) == expected_ms
