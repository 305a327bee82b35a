"""Runs receivers under a real supervisor in a thread, for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.journal import CommitPolicy, JournalStream
from penstock.receivers import (
    Order,
    Receiver,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    write_order,
)

RUN = "run-1"
HASTY = ReceiverSettings(CommitPolicy(block_interval_ms=20), restart_delay_ms=10, poll_ms=10)
_WAIT_S = 20.0


def supervise(
    stream: JournalStream,
    receiver: Receiver,
    settings: ReceiverSettings = HASTY,
    parent: Callable[[], int] = lambda: 1,
) -> ReceiverSupervisor:
    """Return what runs a receiver ``r0``, whose order is the test's to give."""
    return ReceiverSupervisor(ReceiverTask(receiver, stream, "r0", RUN, settings), parent)


@contextmanager
def running(supervisor: ReceiverSupervisor) -> Iterator[list[BaseException]]:
    """Run a supervisor, which something in the block ends; yield the list of what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            supervisor.run()
        except BaseException as e:
            raised.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield raised
    finally:
        thread.join(_WAIT_S)
        assert not thread.is_alive(), "the supervisor did not end"


@contextmanager
def ordered(
    stream: JournalStream,
    receiver: Receiver,
    order: Order | None = None,
    settings: ReceiverSettings = HASTY,
) -> Iterator[list[BaseException]]:
    """Run a receiver under an order, and order it to stop at the end of the block."""
    write_order(stream, "r0", order or Order(RUN))
    with running(supervise(stream, receiver, settings)) as raised:
        try:
            yield raised
        finally:
            order_stop(stream)


def order_stop(stream: JournalStream) -> None:
    """Have the driver's word be stop."""
    write_order(stream, "r0", Order(RUN, stop=True))
