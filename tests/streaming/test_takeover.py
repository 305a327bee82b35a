"""Two runs of a program alive, or one killed at any call: receivers stay within the bounds."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.driver.takeover import take_over
from penstock.errors import FencedError, JournalError
from penstock.journal import (
    Bounds,
    CommitPolicy,
    JournalStream,
    RecordFormat,
    StreamProgress,
    advance,
    commit_consumer,
    retire,
)
from penstock.receivers import Command, ReceiverSettings, ReceiverTask, SocketReceiver
from penstock.receivers.supervisor.renewable_writer import RenewableWriter
from penstock.storage import Storage, open_storage
from tests.journal.helpers import abandoned_when_stuck, clear_memory, memory_stream
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.strace import kill_points, needs_strace, traced

BOUND = 3 << 20
STORE = "x" * 250_000
CALLS = re.compile(r"(link|unlink|rename|mkdir|fsync)\(|openat\(.*O_CREAT")


class Run:
    """A driver's start with so many receivers; the receivers store what they may."""

    def __init__(self, storage: Storage, receivers: int) -> None:
        self.stream = JournalStream.create(storage, "s", RecordFormat("string"))
        self._names = [f"r{i}" for i in range(receivers)]
        self._settings = ReceiverSettings(
            CommitPolicy(block_interval_ms=600_000),
            bounds=Bounds(max_bytes=BOUND // receivers),
            sync=False,
        )
        self._writers: list[RenewableWriter] = []

    def start(self, *others: Run, eager: bool = True) -> None:
        """Take over, and open each receiver's writer, the last one first.

        Eager receivers, and those of ``others``, store before the next one opens. A receiver that
        is fenced is not a hindrance to the others, which other processes run.
        """
        for task in reversed(self.take_over()):
            writer = RenewableWriter(task, lambda error: None)
            with suppress(FencedError):
                writer.open()
                self._writers.append(writer)
            for run in (self, *others) if eager else ():
                run.fill()

    def take_over(self) -> list[ReceiverTask]:
        """What the driver does before it starts receivers."""
        receivers = {name: SocketReceiver("nowhere", 1) for name in self._names}
        return take_over(self.stream, receivers, uuid.uuid4().hex, Command(), self._settings)

    def fill(self) -> None:
        """Store all that the receivers may; what was fenced starts again, as its driver has it."""
        for _ in range(2):
            for each in self._writers:
                with suppress(FencedError):
                    each.renew()
                each.refresh()
                with suppress(JournalError), abandoned_when_stuck(each.current):
                    while each.current.append(STORE, wait=False):
                        each.current.flush()

    def close(self) -> None:
        for each in self._writers:
            each.abandon()


def held(stream: JournalStream) -> int:
    """Bytes of all blocks with records."""
    blocks = (block for writer in stream.writers() for block in stream.blocks(writer))
    return sum(block.size for block in blocks if block.size > len(STORE))


def commit_all(stream: JournalStream) -> None:
    commit_consumer(stream, "c", advance({}, StreamProgress(stream).ends({})))
    retire(stream)


class Between:
    """Starts another run before an operation of the first one, counted from 0."""

    def __init__(self, at: int, first: Run, other: Run, *, eager: bool) -> None:
        self._left = at
        self._eager = eager
        self._first = first
        self._other = other
        self.came = False

    def __call__(self, operation: Operation) -> None:
        self._left -= 1
        if self._left < 0 and not self.came:
            self.came = True
            is_main = threading.current_thread() is threading.main_thread()
            others = [self._first] if is_main else []  # else it waits for this thread
            self._other.start(*others, eager=self._eager)


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize(("earlier", "later"), [(1, 3), (3, 1)])
def test_two_runs_that_start_at_once_hold_no_more_than_the_bound(
    earlier: int, later: int, eager: bool
) -> None:
    at = 0
    while True:
        stream = memory_stream()
        storage = FaultyStorage(stream.storage)
        first, second = Run(storage, earlier), Run(stream.storage, later)
        storage.before = between = Between(at, first, second, eager=eager)
        with suppress(FencedError):
            first.start(eager=eager)
        is_over = not between.came
        storage.before = None
        if is_over:
            second.start(first, eager=eager)
        for run in (first, second, first, second):
            run.fill()
        assert held(stream) <= BOUND, f"the second run came before call {at} of the first"
        assert held(stream) > BOUND * 0.6
        first.close()
        second.close()
        clear_memory()
        if is_over:
            return
        at += 1


def prepare(root: str, receivers: int) -> Callable[[], object]:
    run = Run(open_storage(root), receivers)
    return run.take_over


@pytest.mark.storm
@pytest.mark.slow
@needs_strace
def test_a_run_that_is_killed_while_it_takes_over_leaves_the_bound_kept(tmp_path: Path) -> None:
    """The receivers of the run before are alive all the time, and store when they may."""
    earlier, killed, later = 2, 1, 3
    root, log = tmp_path / "journal", tmp_path / "log"
    before = Run(open_storage(root), earlier)
    before.start()
    before.close()
    points = kill_points(prepare, (str(root), killed), log, CALLS)[::4]
    kills = 0
    for point in points:
        first = Run(open_storage(root), earlier)
        commit_all(first.stream)
        first.start()
        commit_all(first.stream)
        kills += traced(prepare, (str(root), killed), log, point) != 0
        last = Run(open_storage(root), later)
        last.start(first)
        assert held(last.stream) <= BOUND, point
        assert held(last.stream) > BOUND * 0.6, point
        first.close()
        last.close()
    assert kills >= 0.8 * len(points)
