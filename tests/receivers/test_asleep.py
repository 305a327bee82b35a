"""Two receivers of a name: the first sleeps longer than anything is kept, wakes, and harms nothing.

It sleeps before each kind of its storage operations in turn, while its successor takes over and
stores, and every block is retired that may be.
"""

from __future__ import annotations

import threading

import pytest

from penstock.errors import FencedError
from penstock.journal import (
    JournalStream,
)
from penstock.receivers import Command, claim_run, give_command, read_status
from tests.journal.helpers import PlainConsumer, clear_memory, memory_stream
from tests.receivers.supervised import newest_command, running, supervise
from tests.receivers.test_supervisor import WAIT_S, Scripted
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import eventually

BATCHES = 130


class Sleeper:
    """Holds its receiver's threads before an operation on such a path, until it is woken."""

    def __init__(self, kind: str, ending: str) -> None:
        self._kind, self._ending = kind, ending
        self.may_sleep = False
        self.asleep = threading.Event()
        self._woken = threading.Event()

    def before(self, operation: Operation) -> None:
        wanted = operation.kind == self._kind and operation.path.endswith(self._ending)
        if self.may_sleep and wanted and not self._woken.is_set():
            self.asleep.set()
            assert self._woken.wait(6 * WAIT_S)

    def wake(self) -> None:
        self._woken.set()


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("create", ".parquet"),
        ("create", ".status.json"),
        ("read", ".command.json"),
        ("read", ".status.json"),
    ],
)
def test_a_receiver_that_wakes_beside_its_successor_harms_nothing(kind: str, ending: str) -> None:
    clear_memory()
    stream = memory_stream()
    sleeper = Sleeper(kind, ending)
    faulty = FaultyStorage(stream.storage, before=sleeper.before)
    first, second = Scripted(), Scripted()
    reader = PlainConsumer(stream)
    taken: list[str] = []
    acked: list[str] = []
    slow = JournalStream(faulty, stream.name, stream.format)
    earlier = claim_run(stream, "r0", "e" * 32, Command())
    with running(supervise(slow, first, run=earlier)) as ends:
        first.wait_started()
        first.store(["a"])
        taken += reader.take()
        sleeper.may_sleep = True
        first.store("late", ack=lambda: acked.append("late"))
        first_errors = threading.Thread(target=first.reportError, args=("write the status",))
        first_errors.start()
        assert sleeper.asleep.wait(WAIT_S)
        later = claim_run(stream, "r0", "f" * 32, Command())
        with running(supervise(stream, second, run=later)) as second_ends:
            second.wait_started()
            stored = [f"b{number}" for number in range(BATCHES)]
            for record in stored:
                second.store([record])
                taken += reader.take()
            sleeper.wake()
            first_errors.join(WAIT_S)
            assert eventually(lambda: first.stops == 1)
            second.store(["last"])
            give_command(stream, "r0", later, Command(stop=True))
    taken += reader.take()
    assert second_ends == []
    assert all(isinstance(end, FencedError) for end in ends)
    late = ["late"] if "late" in taken else []
    assert sorted(taken) == sorted(["a", *late, *stored, "last"])
    assert acked == late
    status = read_status(stream, "r0")
    assert status is not None
    assert (status.run, status.state) == (later, "stopped")
    assert newest_command(stream, "r0") == Command(stop=True)
