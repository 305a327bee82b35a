"""Runs receivers under a real supervisor in a thread, for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.errors import FencedError
from penstock.journal import CommitPolicy, JournalStream
from penstock.receivers import (
    Command,
    Receiver,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    give_command,
    newest_run,
    read_command,
)
from tests.waiting import WAIT_S

RUN = f"{0:020d}-{1:032x}"
COMMAND_FILE = f"r0.{RUN}.command.json"
HASTY = ReceiverSettings(CommitPolicy(block_interval_ms=20), restart_delay_ms=10, poll_ms=10)


def supervise(
    stream: JournalStream,
    receiver: Receiver,
    settings: ReceiverSettings = HASTY,
    parent: Callable[[], int] = lambda: 1,
    run: str = RUN,
) -> ReceiverSupervisor:
    """Return what runs a receiver ``r0``, whose commands are the test's to give."""
    return ReceiverSupervisor(ReceiverTask(receiver, stream, "r0", run, settings), parent)


@contextmanager
def running(supervisor: ReceiverSupervisor) -> Iterator[list[BaseException]]:
    """Run a supervisor, which something in the block ends; yield the list of what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            supervisor.run()
        except BaseException as e:
            raised.append(e)

    thread = threading.Thread(target=run, daemon=True)  # a failed test does not hang
    thread.start()
    try:
        yield raised
    finally:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the supervisor did not end"


@contextmanager
def commanded(
    stream: JournalStream,
    receiver: Receiver,
    command: Command | None = None,
    settings: ReceiverSettings = HASTY,
) -> Iterator[list[BaseException]]:
    """Run a receiver under a command, and command it to stop at the end of the block."""
    give_command(stream, "r0", RUN, command or Command())
    with running(supervise(stream, receiver, settings)) as raised:
        try:
            yield raised
        finally:
            with suppress(FencedError):  # a later run was the test's to give
                command_stop(stream)


def command_stop(stream: JournalStream) -> None:
    """Command the receiver to stop, as its run does."""
    give_command(stream, "r0", RUN, Command(stop=True))


def newest_command(stream: JournalStream, receiver: str) -> Command:
    """Return what the newest run commands."""
    run = newest_run(stream, receiver)
    command = None if run is None else read_command(stream, receiver, run)
    assert command is not None
    return command


def override(stream: JournalStream, receiver: str, command: Command) -> None:
    """Command a receiver in place of its newest run, as an operator does."""
    run = newest_run(stream, receiver)
    assert run is not None
    give_command(stream, receiver, run, command)
