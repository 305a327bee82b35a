"""Bounds on what receivers hold: never exceeded, and storing continues when blocks retire."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
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
    retire,
    verify_stream,
)
from penstock.journal.bounds.amounts import NOTHING, Amount
from penstock.journal.bounds.usage import StreamUsage
from penstock.journal.epochs import seal_receiver
from penstock.journal.retention.registration import register_consumer
from penstock.journal.retention.shortening import Shortened, shorten_retention
from penstock.receivers import ReceiverSettings, ReceiverTask, SocketReceiver
from penstock.receivers.supervisor.quota import QuotaReport
from penstock.storage import Storage
from tests.journal.helpers import (
    PATIENT,
    abandoned_when_stuck,
    clear_memory,
    memory_stream,
    read_all,
    write_blocks,
)
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import WAIT_S, eventually

BOUND = 1 << 20
BYTES = Bounds(max_bytes=BOUND)
TOTAL = 3 << 20
"""Of a stream with up to three receivers."""
SEAL = 4_000
"""Seals are smaller than this, and blocks with records larger, in these tests."""
RECORD = 12_000
LARGE = 3 * RECORD
HASTY = replace(PATIENT, spacing_ms=0)


def block_bytes(stream: JournalStream) -> int:
    """Bytes of all blocks with records, as an operator would count them."""
    blocks = (block for writer in stream.writers() for block in stream.blocks(writer))
    return sum(block.size for block in blocks if block.size > SEAL)


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
        beside: Mapping[str, Amount] | None = None,
        *,
        record: int = RECORD,
    ) -> None:
        self.name = name
        self._record = record
        self._beside = beside
        self.storage = FaultyStorage(inner)
        self.stream = JournalStream.create(self.storage, "s", RecordFormat("string"))
        self.bounds = bounds
        self.open()

    def open(self) -> None:
        self.writer = JournalWriter(self.stream, self.name, policy=HASTY, bounds=self.bounds)
        self.quota = WriterQuota(self.writer, self.bounds, self._beside)
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
    """Receivers of one program on one stream; while one measures, others act between its calls.

    ``runs`` starts the program again with another number of receivers, as a driver does: what wrote
    before is sealed, and the bound divided anew.
    """

    def __init__(self, count: int, interleaved: Iterator[int]) -> None:
        self.stream = memory_stream()
        self.members: list[Member] = []
        self.zombies: list[JournalWriter] = []
        self._interleaved = interleaved
        self._busy: set[str] = set()
        self.run(count)

    def run(self, count: int) -> None:
        """Start the program with so many receivers; those that wrote so far stay alive."""
        self.zombies += [member.writer for member in self.members]
        names = [f"r{i}" for i in range(count)]
        known = {writer.receiver for writer in self.stream.writers()}
        for name in known.union(names):
            seal_receiver(self.stream, name)
        part = Bounds(max_bytes=TOTAL // count)
        parts = {**dict.fromkeys(known, NOTHING), **dict.fromkeys(names, part.amount)}
        self.members = []
        for name in names:
            beside = {other: bound for other, bound in parts.items() if other != name}
            member = Member(self.stream.storage, name, part, beside, record=LARGE)
            member.storage.before = lambda operation, name=name: self._between(name, operation)
            self.members.append(member)

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
        elif action == "run":
            self.run(1 + size % 3)
            self._flush_zombies()
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


ACTIONS = ["refresh", "burst", "use up"] * 3 + ["store", "flush", "commit", "takeover", "run"]


@settings(max_examples=40)
@given(
    count=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(SEAL, 240_000)),
        min_size=15,
        max_size=30,
    ),
    interleaved=st.lists(st.sampled_from([0] * 9 + [1, 2, 3]), min_size=80, max_size=80),
)
def test_the_bound_holds_whatever_writers_do(
    count: int, steps: list[tuple[str, int, int]], interleaved: list[int]
) -> None:
    world = World(count, iter(interleaved))
    try:
        for step in steps:
            world.step(*step)
            assert block_bytes(world.stream) <= TOTAL
    finally:
        world.close()
        clear_memory()


@pytest.mark.storm
@pytest.mark.parametrize("between", ["other refreshes", "other bursts", "goes on itself"])
@pytest.mark.parametrize("filled", [1, 9])
def test_the_bound_holds_whatever_comes_between_the_calls_of_a_measurement(
    between: str, filled: int
) -> None:
    choice = 1 + ["other refreshes", "other bursts", "goes on itself"].index(between)
    for at in range(30):
        world = World(2, itertools.chain([0] * at, [choice], itertools.repeat(0)))
        for _ in range(filled):
            world.members[0].store(LARGE * 4)
            world.members[0].flush()
        for action, who in [("refresh", 0), ("use up", 0)] * 2 + [("burst", 1)]:
            world.step(action, who, 0)
            assert block_bytes(world.stream) <= TOTAL, f"{between} at file call {at}"
        world.step("burst", 0, 0)
        assert block_bytes(world.stream) <= TOTAL, f"{between} at file call {at}"
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
    world = World(1, iter(()))
    (member,) = world.members

    def publish() -> None:
        for _ in range(3):
            assert member.store(310_000)
            member.flush()

    came = before_next(member, "list", "*", publish)
    member.quota.refresh()
    assert came()
    member.use_up()
    assert 900_000 < block_bytes(world.stream) <= TOTAL
    member.quota.refresh()
    member.use_up()
    assert TOTAL * 0.8 < block_bytes(world.stream) <= TOTAL
    world.close()


def held_by(world: World) -> list[int]:
    """Bytes that each of the program's receivers holds, in all of its epochs."""
    held = StreamUsage(world.stream, count_records=False)
    return [held.measure([m.name])[m.name].size_bytes for m in world.members]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_receiver_comes_close_to_its_part(count: int) -> None:
    world = World(count, iter(()))
    for member in world.members:
        member.fill()
        member.quota.refresh()
        member.use_up()
    assert TOTAL * 0.7 <= block_bytes(world.stream) <= TOTAL
    assert max(held_by(world)) <= TOTAL // count
    # A consumer moves on: then all of them go on.
    commit_all(world.stream)
    for member in world.members:
        member.quota.refresh()
    assert all(member.store(20_000) for member in world.members)
    world.close()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3), (3, 2), (3, 1)])
def test_another_number_of_receivers_holds_no_more_than_the_bound_together(
    before: int, after: int
) -> None:
    """What is held beyond the new parts is taken off them, until a consumer has committed it."""
    world = World(before, iter(()))
    for member in world.members:
        member.fill()
    held = block_bytes(world.stream)
    world.run(after)
    for _ in range(4):
        for member in world.members:
            member.quota.refresh()
            member.use_up()
    assert held * 0.9 < block_bytes(world.stream) <= TOTAL
    assert any(member.quota.refresh() for member in world.members if not member.store(60_000))
    commit_all(world.stream)
    for member in world.members:
        member.fill()
    assert TOTAL * 0.7 <= block_bytes(world.stream) <= TOTAL
    world.close()


def test_the_refusal_names_receivers_that_are_gone_and_still_hold_records() -> None:
    world = World(2, iter(()))
    for member in world.members:
        member.fill()
    world.run(1)
    full = world.members[0].fill()
    assert "r1 still hold" in str(full)
    world.close()


def test_one_that_is_gone_counts_until_its_records_are_committed() -> None:
    """Also while its blocks are retained, where only records are bounded."""
    stream = memory_stream()
    gone = write_blocks(stream, [["a", "b"], ["c"], ["d"]], receiver="r1")
    bounds = Bounds(max_lag_records=5)
    member = Member(stream.storage, "r0", bounds, {"r1": bounds.no_part})
    assert member.writer.append("x", wait=False)
    assert not member.writer.append("y", wait=False)
    register_consumer(stream, "job", "me").commit({str(gone): 4}, retained={})
    member.quota.refresh()
    assert member.writer.append_all(["y"] * 4, wait=False)
    member.storage.operations.clear()
    member.quota.refresh()
    assert not any(str(gone) in operation.path for operation in member.storage.operations)
    member.writer.abandon()


def test_receivers_within_their_parts_are_measured_once() -> None:
    world = World(3, iter(()))
    member = world.members[0]
    member.quota.refresh()
    member.storage.operations.clear()
    member.quota.refresh()
    folders = {operation.path for operation in member.storage.operations}
    assert folders == {"s", f"s/{member.writer.id}"}
    world.close()


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
    assert block_bytes(stream) >= 100_000


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
    with pytest.raises(WriterBrokenError, match="leaves no room"):
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
        assert block_bytes(stream) <= BOUND
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
    assert block_bytes(stream) <= BOUND


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
    assert block_bytes(stream) <= BOUND


@pytest.mark.parametrize("bounds", [{"max_bytes": 1000}, {"max_lag_records": 0}])
def test_bounds_that_cannot_work_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="or leave it out"):
        Bounds(**bounds)


def test_many_threads_together_keep_to_the_bound() -> None:
    """Group commit, real threads, and blocks that are published while others store."""
    stream = memory_stream()
    policy = CommitPolicy(block_interval_ms=5)
    part = Bounds(max_bytes=TOTAL // 3)
    writers = [JournalWriter(stream, f"r{i}", policy=policy, bounds=part) for i in range(3)]
    quotas = [WriterQuota(writer, part) for writer in writers]
    for quota in quotas:
        quota.refresh()

    def store(writer: JournalWriter) -> None:
        with suppress(JournalFullError):
            for n in itertools.count():
                writer.append("z" * (SEAL + n % 7 * 3_000))

    threads = [threading.Thread(target=store, args=(w,)) for w in writers for _ in range(2)]
    for thread in threads:
        thread.start()
    for round_ in range(60):
        for quota in quotas:
            quota.refresh()
        assert block_bytes(stream) <= TOTAL
        if round_ % 10 == 9:
            commit_all(stream)
    for writer in writers:
        writer.set_blocking(False)
    assert eventually(lambda: not any(thread.is_alive() for thread in threads))
    for writer in writers:
        writer.close()
    assert block_bytes(stream) <= TOTAL


def test_a_full_buffer_is_waited_for_also_when_room_is_not() -> None:
    """Without bounds there is nothing that a stop could have to wait for."""
    stream = memory_stream()
    writer = JournalWriter(stream, "r0", max_buffered_bytes=1000)
    writer.set_blocking(False)
    for n in range(50):
        writer.append(f"{n:0900d}")
    writer.close()
    assert len(read_all(stream)) == 50


# -- what is only retained --


def test_what_is_only_retained_gives_way_oldest_first() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    writer = str(member.writer.id)
    job = register_consumer(stream, "job", "me")
    member.fill()  # nothing is committed: the source waits
    assert member.quota.shortened == Shortened()
    for _ in range(3):
        end = member.writer.end_offset
        job.commit({writer: end}, retained={})
        assert retire(stream) == 0
        for _ in range(10):
            member.use_up()
            assert block_bytes(stream) <= BOUND
            member.quota.refresh()
        assert member.writer.end_offset > end
        held = stream.blocks(writer)
        assert 0 < held[0].start_offset <= end  # what is not committed stays
        assert all(verdict.error is None for verdict in verify_stream(stream))
        assert member.quota.shortened.records == held[0].start_offset


RECEIVERS = ("a", "b")


def test_of_several_receivers_about_the_same_part_is_released() -> None:
    stream = memory_stream()
    writers = [
        write_blocks(stream, [["x" * RECORD]] * blocks, receiver=name, close=False)
        for name, blocks in zip(RECEIVERS, (40, 20), strict=True)
    ]
    register_consumer(stream, "job", "me").commit({str(w): 100 for w in writers}, retained={})
    size = block_bytes(stream)
    shortened = shorten_retention(stream, size // 2, RECEIVERS)
    assert size // 2 <= shortened.size_bytes <= size // 2 + 2 * RECORD
    left = [len(stream.blocks(writer)) for writer in writers]
    assert left in ([20, 10], [19, 10], [20, 9])
    commit_consumer(stream, "late", {str(writers[0]): 25, str(writers[1]): 0})
    shorten_retention(stream, size, RECEIVERS)
    assert [stream.blocks(writer)[0].start_offset for writer in writers] == [25, 20 - left[1]]


def test_that_the_period_is_shortened_is_said(caplog: pytest.LogCaptureFixture) -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    member.fill()
    register_consumer(stream, "job", "me").commit(
        {str(member.writer.id): member.writer.end_offset}, retained={}
    )
    settings = ReceiverSettings(bounds=BYTES)
    task = ReceiverTask(SocketReceiver("nowhere", 1), stream, "r0", "run", settings)
    report = QuotaReport(member.writer, task)
    report.refresh()
    member.store(RECORD * 10)
    for _ in range(3):
        report.refresh()
    (said,) = (record.getMessage() for record in caplog.records)
    assert "reprocessing period of stream s is shortened" in said
    assert "that all consumers have committed" in said


@pytest.mark.parametrize("content", [b"{}", b"not JSON"])
def test_claim_files_of_earlier_releases_are_ignored(content: bytes) -> None:
    """A release before this one kept a receiver's claim in ``_room.json``, beside its blocks."""
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    stream.storage.create(f"s/{member.writer.id}/_room.json", content)
    member.fill()
    member.writer.abandon()
    member.open()
    assert block_bytes(stream) > BOUND * 0.8
    assert all(verdict.error is None for verdict in verify_stream(stream))
    member.writer.abandon()
