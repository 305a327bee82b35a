"""A stateful model of the journal: sources that can be replayed, writers that die, a driver.

Each receiver's source is the numbers 0, 1, 2, ...; an attempt goes on from the durable position.
So whatever is killed or fails, in any order, the journal must hold exactly 0 .. n-1 for it, batches
must take each of them once and in order, and whatever was acked must be among them.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from penstock.errors import JournalError, StorageError
from penstock.journal import (
    CommitPolicy,
    JournalStream,
    JournalWriter,
    StreamProgress,
    advance,
    commit_consumer,
    ranges_between,
    read_records,
    retire,
)
from penstock.journal.layout import parse_writer
from penstock.model import Offsets
from tests.journal.helpers import clear_memory, memory_stream
from tests.storage.faulty_storage import FaultyStorage

RECEIVERS = ["a", "b"]
POLICY = CommitPolicy(block_interval_ms=600_000, spacing_ms=0, max_block_records=8)


class Attempt:
    """One writer and the source in front of it."""

    def __init__(self, stream: JournalStream, receiver: str) -> None:
        self.writer = JournalWriter(stream, receiver, policy=POLICY)
        self.next = self.writer.position or 0
        self.acked: list[int] = []

    def store(self, count: int, as_batch: bool) -> None:
        """Store the next ``count`` numbers, acked together."""
        last = self.next + count
        numbers = list(range(self.next, last))
        self.next = last
        records: Any = [str(number) for number in numbers]
        if as_batch:
            records = pa.table({"value": pa.array(records, pa.string())})
        self.writer.append_all(records, position=last, ack=lambda: self.acked.extend(numbers))


class JournalMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        """Start with an empty stream."""
        clear_memory()
        inner = memory_stream()
        self.faulty = FaultyStorage(inner.storage)
        self.stream = JournalStream(self.faulty, inner.name, inner.format)
        self.progress = StreamProgress(self.stream)
        self.offsets: Offsets = {}
        self.taken: dict[str, list[int]] = {}
        """What batches took, by writer."""
        self.current: dict[str, Attempt] = {}
        self.zombies: list[Attempt] = []
        self.acked: dict[str, list[int]] = {receiver: [] for receiver in RECEIVERS}

    @rule(receiver=st.sampled_from(RECEIVERS))
    def open(self, receiver: str) -> None:
        """Begin an attempt; one that still runs becomes a zombie."""
        with contextlib.suppress(StorageError):
            attempt = Attempt(self.stream, receiver)
            if receiver in self.current:
                self.zombies.append(self.current[receiver])
            self.current[receiver] = attempt
            attempt.acked = self.acked[receiver]

    @rule(
        receiver=st.sampled_from(RECEIVERS),
        count=st.integers(0, 12),
        as_batch=st.booleans(),
        flush=st.booleans(),
    )
    def store(self, receiver: str, count: int, as_batch: bool, flush: bool) -> None:
        """Store some records."""
        if receiver in self.current:
            with contextlib.suppress(JournalError):
                self.current[receiver].store(count, as_batch)
                if flush:
                    self.current[receiver].writer.flush()

    @rule(receiver=st.sampled_from(RECEIVERS), gracefully=st.booleans())
    def end(self, receiver: str, gracefully: bool) -> None:
        """Close an attempt, or kill it."""
        if receiver in self.current:
            writer = self.current.pop(receiver).writer
            with contextlib.suppress(JournalError):
                writer.close() if gracefully else writer.abandon()
            writer.abandon()

    @rule(count=st.integers(1, 5), as_batch=st.booleans())
    def wake_zombie(self, count: int, as_batch: bool) -> None:
        """Let a writer whose successor runs go on: nothing of it may be acked any more."""
        # No precondition: which writers live depends on threads, and hypothesis must not see that.
        if not self.zombies:
            return
        zombie = self.zombies.pop()
        zombie.acked = []
        with contextlib.suppress(JournalError):
            zombie.store(count, as_batch)
            zombie.writer.flush()
            raise AssertionError("a zombie published")
        zombie.writer.abandon()
        assert zombie.acked == []

    @rule(nth=st.integers(1, 3), after=st.booleans())
    def fail(self, nth: int, after: bool) -> None:
        """Let a publish fail soon, with or without effect."""
        self.faulty.fail("create", nth=nth, path="*.parquet", after=after)

    @rule(share=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
    def take_batch(self, share: float) -> None:
        """Take the next batch: all, or as much of each writer as a rate limit allows."""
        acked = {receiver: set(numbers) for receiver, numbers in self.acked.items()}
        latest = advance(self.offsets, self.progress.ends(self.offsets))
        end = {}
        for writer, offset in latest.items():
            start = self.offsets.get(writer, 0)
            end[writer] = start + int((offset - start) * share)
        for wanted in ranges_between(self.offsets, end):
            records = [int(record) for record in read_records(self.stream, [wanted])]
            assert len(records) == wanted.count
            self.taken.setdefault(wanted.partition, []).extend(records)
        self.offsets = end
        if share == 1.0:  # nothing acked is overlooked
            assert all(acked[receiver] <= set(self._taken_of(receiver)) for receiver in RECEIVERS)

    @rule()
    def commit_batch(self) -> None:
        """Commit the last batch, and retire what is behind it."""
        commit_consumer(self.stream, "job", self.offsets)
        retire(self.stream)

    @rule()
    def restart_driver(self) -> None:
        """Forget what the driver had seen."""
        self.progress = StreamProgress(self.stream)

    def teardown(self) -> None:
        """Let each receiver have a last attempt, take all that is left, and compare."""
        if not hasattr(self, "stream"):
            return
        try:
            self._finish()
        finally:
            clear_memory()

    def _finish(self) -> None:
        for attempt in [*self.current.values(), *self.zombies]:
            attempt.writer.abandon()
        self.stream = JournalStream(_inner(self.faulty), self.stream.name, self.stream.format)
        self.progress = StreamProgress(self.stream)
        positions = {}
        for receiver in RECEIVERS:
            last = Attempt(self.stream, receiver)
            positions[receiver] = last.next
            last.writer.close()
        self.take_batch(1.0)
        self.take_batch(1.0)
        for receiver in RECEIVERS:
            taken = self._taken_of(receiver)
            assert taken == list(range(positions[receiver]))
            assert set(self.acked[receiver]) <= set(taken)
            assert self.acked[receiver] == sorted(self.acked[receiver])

    def _taken_of(self, receiver: str) -> list[int]:
        """Return what batches took of a receiver, by epoch."""
        writers = sorted(w for name in self.taken if (w := parse_writer(name)))
        return [n for w in writers if w.receiver == receiver for n in self.taken[str(w)]]


def _inner(faulty: FaultyStorage) -> Any:
    rebuild, arguments = faulty.__reduce__()
    return rebuild(*arguments)
