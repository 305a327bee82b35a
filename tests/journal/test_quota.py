"""Bounds on what a receiver holds: never exceeded, and storing continues after a commit."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import (
    ConfigError,
    JournalError,
    JournalFullError,
    StorageFullError,
    WriterBrokenError,
)
from penstock.journal import (
    Bounds,
    CommitPolicy,
    DeferredPosition,
    JournalStream,
    JournalWriter,
    RecordFormat,
    StreamProgress,
    WriterQuota,
    advance,
    commit_consumer,
    consumers,
    register_consumer,
    remove_consumer,
    retire,
)
from penstock.journal.offsets import is_finished
from penstock.storage import Storage
from tests.journal.helpers import (
    PATIENT,
    abandoned_when_stuck,
    clear_memory,
    memory_stream,
    read_all,
)
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import WAIT_S, eventually

BOUND = 1 << 20
BYTES = Bounds(max_bytes=BOUND)
SEAL = 4_000
"""Seals are smaller than this, and blocks with records larger, in these tests."""
RECORD = 12_000
LARGE = 3 * RECORD
HASTY = replace(PATIENT, spacing_ms=0)


def uncommitted_bytes(stream: JournalStream, receiver: str = "r0") -> int:
    """Bytes of a receiver's blocks that a consumer has not committed, or of all without one."""
    committed = list(consumers(stream).values()) or [{}]
    size = 0
    for writer in stream.writers():
        if writer.receiver != receiver or all(is_finished(writer, c) for c in committed):
            continue
        done = min(c.get(str(writer), 0) for c in committed if not is_finished(writer, c))
        for block in stream.blocks(writer):
            end = stream.footer(writer, block.start_offset).end_offset
            size += block.size if block.size > SEAL and end > done else 0
    return size


def commit_all(stream: JournalStream, consumer: str = "c") -> None:
    """Be a consumer that has done everything."""
    commit_consumer(stream, consumer, advance({}, StreamProgress(stream).ends({})))
    retire(stream)


class Member:
    """One receiver, with its writer and its quota."""

    def __init__(
        self,
        inner: Storage,
        name: str,
        bounds: Bounds,
        *,
        record: int = RECORD,
    ) -> None:
        self.name = name
        self._record = record
        self.storage = FaultyStorage(inner)
        self.stream = JournalStream.create(self.storage, "s", RecordFormat("string"))
        self.bounds = bounds
        self.open()

    def open(self) -> None:
        self.writer = JournalWriter(self.stream, self.name, policy=HASTY, bounds=self.bounds)
        self.quota = WriterQuota(self.writer, self.bounds)
        self.quota.refresh()

    def store(self, size: int) -> bool:
        return self.writer.append("x" * size, wait=False)

    def flush(self) -> None:
        with abandoned_when_stuck(self.writer):
            self.writer.flush()

    def use_up(self) -> None:
        """Store all that is allowed now."""
        while self.store(self._record):
            while self.store(self._record):
                pass
            self.flush()

    def fill(self) -> JournalFullError:
        """Store until there is no room; return what the refresh says then."""
        while True:
            self.use_up()
            if full := self.quota.refresh():
                return full


class World:
    """Two receivers of one stream; while one measures, both act between its calls."""

    def __init__(self, interleaved: Iterator[int]) -> None:
        self.stream = memory_stream()
        self.members: list[Member] = []
        self.zombies: list[JournalWriter] = []
        self._interleaved = interleaved
        self._busy: set[str] = set()
        for name in ("r0", "r1"):
            member = Member(self.stream.storage, name, BYTES, record=LARGE)
            member.storage.before = lambda operation, name=name: self._between(name, operation)
            self.members.append(member)

    def held(self) -> int:
        """Return what the receiver holds that has more."""
        return max(uncommitted_bytes(self.stream, member.name) for member in self.members)

    def step(self, action: str, who: int, size: int) -> None:
        i = who % len(self.members)
        member = self.members[i]
        if action == "refresh":
            self._refresh(i)
        elif action == "store":
            member.store(size)
        elif action == "flush":
            member.flush()
        elif action == "use up":
            member.use_up()
        elif action == "burst":
            self._burst(i)
        elif action == "commit":
            commit_all(self.stream)
        elif action == "begin":  # a consumer that has committed nothing
            commit_consumer(self.stream, "late", {})
        elif action == "end":
            remove_consumer(self.stream, "late")
        else:  # the process hangs, another one takes over, and the first one wakes up
            self.zombies.append(member.writer)
            member.open()
            self._flush_zombies()

    def close(self) -> None:
        for writer in (*self.zombies, *(member.writer for member in self.members)):
            writer.abandon()

    def _flush_zombies(self) -> None:
        for zombie in self.zombies:
            with suppress(JournalError):
                zombie.append("x" * LARGE, wait=False)
                zombie.flush()

    def _refresh(self, i: int) -> None:
        name = self.members[i].name
        if name not in self._busy:
            self._busy.add(name)
            self.members[i].quota.refresh()
            self._busy.discard(name)

    def _burst(self, i: int) -> None:
        for _ in range(6):
            self._refresh(i)
            self.members[i].use_up()

    def _between(self, name: str, operation: Operation) -> None:
        if name not in self._busy or threading.current_thread() is not threading.main_thread():
            return
        choice = next(self._interleaved, 0)
        i = next(i for i, member in enumerate(self.members) if member.name == name)
        other = (i + 1) % len(self.members)
        if choice == 1:
            self._refresh(other)
        elif choice == 2:  # all that it may, again and again
            self._burst(other)
        elif choice == 3:  # the one that measures goes on storing
            self.members[i].use_up()


ACTIONS = ["refresh", "burst", "use up"] * 3 + [
    "store",
    "flush",
    "commit",
    "takeover",
    "begin",
    "end",
]


@settings(max_examples=40)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1), st.integers(SEAL, 240_000)),
        min_size=15,
        max_size=30,
    ),
    interleaved=st.lists(st.sampled_from([0] * 9 + [1, 2, 3]), min_size=80, max_size=80),
)
def test_the_bound_holds_whatever_writers_do(
    steps: list[tuple[str, int, int]], interleaved: list[int]
) -> None:
    world = World(iter(interleaved))
    most = BOUND
    try:
        for step in steps:
            before = world.held()
            world.step(*step)
            # What was committed and counts again, for another consumer, is kept; nothing is added.
            most = max(BOUND, world.held() if step[0] in ("begin", "end") else min(most, before))
            assert world.held() <= most
    finally:
        world.close()
        clear_memory()


@pytest.mark.storm
@pytest.mark.parametrize("between", [1, 2, 3])
@pytest.mark.parametrize("filled", [1, 3])
def test_the_bound_holds_whatever_comes_between_the_calls_of_a_measurement(
    between: int, filled: int
) -> None:
    for at in range(30):
        world = World(itertools.chain([0] * at, [between], itertools.repeat(0)))
        for _ in range(filled):
            world.members[0].store(LARGE * 4)
            world.members[0].flush()
        for action, who in [("refresh", 0), ("use up", 0)] * 2 + [("burst", 1), ("burst", 0)]:
            world.step(action, who, 0)
            assert world.held() <= BOUND, f"{between} at file call {at}"
        world.close()
        clear_memory()


def before_next(
    member: Member, kind: str, path: str, act: Callable[[], None]
) -> Callable[[], bool]:
    """Act once, before the member's next such operation; return what tells whether it came."""
    to_come = [True]

    def before(operation: Operation) -> None:
        if to_come and operation.kind == kind and fnmatchcase(operation.path, path):
            to_come.clear()
            act()

    member.storage.before = before
    return lambda: not to_come


def test_blocks_that_are_counted_twice_give_no_room() -> None:
    """They are published after the writer was asked, and before its folder is listed."""
    member = Member(memory_stream().storage, "r0", BYTES)

    def publish() -> None:
        for _ in range(3):
            assert member.store(100_000)
            member.flush()

    came = before_next(member, "list", "*", publish)
    member.quota.refresh()
    assert came()
    member.use_up()
    assert 300_000 < uncommitted_bytes(member.stream) <= BOUND
    member.quota.refresh()
    member.use_up()
    assert BOUND * 0.8 < uncommitted_bytes(member.stream) <= BOUND
    member.writer.abandon()


def test_a_receiver_comes_close_to_its_bound_whatever_others_hold() -> None:
    world = World(iter(()))
    for member in world.members:
        member.fill()
        assert BOUND * 0.7 <= uncommitted_bytes(world.stream, member.name) <= BOUND
    commit_all(world.stream)
    for member in world.members:
        member.quota.refresh()
        assert member.store(20_000)
    world.close()


def test_earlier_epochs_count_until_they_are_committed() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    member.fill()
    member.writer.abandon()
    member.open()
    assert not member.store(RECORD * 10)
    commit_all(stream)
    member.quota.refresh()
    assert member.store(RECORD * 10)
    member.writer.abandon()


def test_a_writer_that_is_finished_for_all_consumers_is_not_listed() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    member.fill()
    first = str(member.writer.id)
    member.writer.close()
    member.open()
    commit_consumer(stream, "c", {str(member.writer.id): 0})
    member.storage.operations.clear()
    member.quota.refresh()
    assert not any(first in operation.path for operation in member.storage.operations)
    member.writer.abandon()


def test_blocks_that_are_only_retained_do_not_count() -> None:
    """Else a journal full of them would wait for a batch that never comes."""
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    job = register_consumer(stream, "job", "me")
    for _ in range(3):
        member.fill()
        held = len(stream.blocks(member.writer.id))
        job.commit({str(member.writer.id): member.writer.end_offset}, retained={})
        assert retire(stream) == 0
        assert len(stream.blocks(member.writer.id)) == held
        member.quota.refresh()
        assert member.store(RECORD)
        member.flush()
    member.writer.abandon()


def test_a_waiting_store_goes_on_when_blocks_retire() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    assert "no room" in str(member.fill())
    waiting = threading.Thread(target=member.writer.append, args=("y" * 100_000,))
    waiting.start()
    member.quota.refresh()
    assert waiting.is_alive()
    commit_all(stream)
    member.quota.refresh()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    member.writer.close()
    assert uncommitted_bytes(stream) >= 100_000


class Large(DeferredPosition):
    """A position that is larger than the bound."""

    def place(self, writer: str, start_offset: int, end_offset: int) -> None:
        """Known from the start."""

    def value(self) -> str:
        return "x" * (2 << 20)


def test_a_position_larger_than_the_bound_is_refused() -> None:
    stream = memory_stream()
    bounds = Bounds(max_bytes=1 << 20)
    writer = JournalWriter(stream, "r0", bounds=bounds)
    writer.allow(bounds.amount)
    for records in (["a"], []):
        with pytest.raises(ConfigError, match="is too large"):
            writer.append_all(records, position=Large().value())
    writer.append("a", position=Large())  # it is known with the block
    with pytest.raises(WriterBrokenError, match="reached its bound"):
        writer.flush()
    writer.abandon()


def test_blocks_that_turn_out_larger_than_reserved_wait() -> None:
    """A dictionary column is small in memory, and written out in full."""
    schema = pa.schema([pa.field("v", pa.dictionary(pa.int32(), pa.string()))])
    stream = memory_stream(schema)
    writer = JournalWriter(stream, "r0", policy=PATIENT, bounds=BYTES)
    quota = WriterQuota(writer, BYTES)
    quota.refresh()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * 900])
    stored = 0
    for _ in range(20):
        quota.refresh()
        stored += writer.append_all(pa.record_batch([column], schema=schema), wait=False)
        flushing = threading.Thread(target=suppressed_flush, args=(writer,), daemon=True)
        flushing.start()
        flushing.join(0.05)
        assert uncommitted_bytes(stream) <= BOUND
        if flushing.is_alive():
            break
    else:
        pytest.fail("nothing had to wait")
    commit_all(stream)
    quota.refresh()
    flushing.join(WAIT_S)
    assert not flushing.is_alive()
    assert writer.end_offset == stored * 400
    writer.close()


def suppressed_flush(writer: JournalWriter) -> None:
    with suppress(JournalError):
        writer.flush()


def store_beside(member: Member) -> tuple[threading.Thread, list[JournalError]]:
    """Store more than there is room for, in a thread of its own; return what that raises, too."""
    raised: list[JournalError] = []

    def store() -> None:
        try:
            member.writer.append("y" * 100_000)
        except JournalError as e:
            raised.append(e)

    thread = threading.Thread(target=store, daemon=True)
    thread.start()
    return thread, raised


def test_a_store_that_may_not_wait_raises_and_what_is_held_is_sealed() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    member.fill()
    stored = member.writer.usage().taken.records
    waiting, raised = store_beside(member)
    member.writer.set_blocking(False)
    waiting.join(WAIT_S)
    assert [type(e) for e in raised] == [JournalFullError]
    member.writer.close()
    assert len(read_all(stream)) == stored
    assert uncommitted_bytes(stream) <= BOUND


def test_a_writer_that_is_closed_wakes_a_store_that_waits() -> None:
    member = Member(memory_stream().storage, "r0", BYTES)
    member.fill()
    waiting, raised = store_beside(member)
    assert eventually(lambda: is_waiting(waiting))
    member.writer.close()
    waiting.join(WAIT_S)
    assert [type(e) for e in raised] == [WriterBrokenError]


def is_waiting(thread: threading.Thread) -> bool:
    """Whether a thread is in the wait of a condition."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "wait"


def test_a_store_that_could_never_fit_is_refused() -> None:
    member = Member(memory_stream().storage, "r0", BYTES)
    with pytest.raises(ConfigError, match="raise the bound"):
        member.store(BOUND // 2)
    member.writer.abandon()


def test_the_lag_limit_counts_what_a_consumer_has_not_committed() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", Bounds(max_lag_records=10))
    commit_all(stream, "fast")
    commit_all(stream, "slow")

    def store_while_allowed() -> int:
        taken = 0
        for _ in range(100):
            member.quota.refresh()
            taken += member.store(10)
            member.writer.flush()
        return taken

    assert store_while_allowed() == 10
    commit_all(stream, "fast")
    assert store_while_allowed() == 0  # the slowest one counts
    commit_all(stream, "slow")
    assert store_while_allowed() == 10
    member.writer.abandon()


def test_without_a_consumer_all_that_is_held_lags() -> None:
    member = Member(memory_stream().storage, "r0", Bounds(max_lag_records=10))
    taken = 0
    for _ in range(50):
        member.quota.refresh()
        taken += member.store(10)
    assert taken == 10
    assert "no consumer is registered" in str(member.quota.refresh())
    member.writer.abandon()


def test_a_store_of_more_than_the_lag_limit_goes_when_nothing_waits() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", Bounds(max_lag_records=10))
    assert member.writer.append_all(["x"] * 25, wait=False)
    member.writer.flush()
    for _ in range(3):
        assert not member.writer.append_all(["x"] * 25, wait=False)
        assert member.quota.refresh() is not None
    commit_all(stream)
    member.quota.refresh()
    assert member.writer.append_all(["x"] * 25, wait=False)
    member.writer.abandon()


def test_a_look_that_fails_leaves_in_force_what_was_allowed() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    member.storage.fill_up()
    assert member.store(10_000)
    for _ in range(3):  # until the claim would have to be raised
        with suppress(StorageFullError):
            while member.store(200_000):
                member.quota.refresh()
    member.storage.free_up()
    member.writer.close()
    assert uncommitted_bytes(stream) <= BOUND


@pytest.mark.parametrize("bounds", [{"max_bytes": 1000}, {"max_lag_records": 0}])
def test_bounds_that_cannot_work_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="or leave it out"):
        Bounds(**bounds)


def test_many_threads_together_keep_to_the_bound() -> None:
    """Group commit, real threads, and blocks that are published while others store."""
    stream = memory_stream()
    policy = CommitPolicy(block_interval_ms=5)
    writer = JournalWriter(stream, "r0", policy=policy, bounds=BYTES)
    quota = WriterQuota(writer, BYTES)
    quota.refresh()

    def store() -> None:
        with suppress(JournalFullError):
            for n in itertools.count():
                writer.append("z" * (SEAL + n % 7 * 3_000))

    threads = [threading.Thread(target=store) for _ in range(4)]
    for thread in threads:
        thread.start()
    for round_ in range(60):
        quota.refresh()
        assert uncommitted_bytes(stream) <= BOUND
        if round_ % 10 == 9:
            commit_all(stream)
    writer.set_blocking(False)
    assert eventually(lambda: not any(thread.is_alive() for thread in threads))
    writer.close()
    assert uncommitted_bytes(stream) <= BOUND


def test_a_full_buffer_is_waited_for_also_when_room_is_not() -> None:
    """Without bounds there is nothing that a stop could have to wait for."""
    stream = memory_stream()
    writer = JournalWriter(stream, "r0", max_buffered_bytes=1000)
    writer.set_blocking(False)
    for n in range(50):
        writer.append(f"{n:0900d}")
    writer.close()
    assert len(read_all(stream)) == 50
