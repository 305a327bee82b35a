"""Bounds on a stream: never exceeded, by any number of writers, and left when blocks retire."""

from __future__ import annotations

import itertools
import json
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
    StorageError,
    StorageFullError,
)
from penstock.journal import (
    Bounds,
    CommitPolicy,
    JournalRoom,
    JournalStream,
    JournalWriter,
    RecordFormat,
    StreamProgress,
    advance,
    commit_consumer,
    retire,
    verify_stream,
)
from penstock.journal.bounds.amounts import Amount
from penstock.journal.bounds.usage import Claim, read_claim
from penstock.journal.layout import WriterId, room_path
from penstock.journal.retention.registration import register_consumer
from penstock.journal.retention.shortening import Shortened, shorten_retention
from penstock.receivers import ReceiverSettings
from penstock.receivers.supervisor.room import WriterRoom
from penstock.storage import Storage
from penstock.testing import FaultyStorage
from penstock.testing.faulty_storage import Operation
from tests.journal.helpers import (
    PATIENT,
    abandoned_when_stuck,
    clear_memory,
    memory_stream,
    read_all,
    write_blocks,
)
from tests.waiting import eventually

BOUND = 1 << 20
BYTES = Bounds(max_bytes=BOUND)
SEAL = 4_000
"""Seals are smaller than this, and blocks with records larger, in these tests."""
RECORD = 12_000
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
    """One receiver, with its writer and its room."""

    def __init__(self, inner: Storage, name: str, bounds: Bounds) -> None:
        self.name = name
        self.storage = FaultyStorage(inner)
        self.stream = JournalStream.create(self.storage, "s", RecordFormat("string"))
        self.bounds = bounds
        self.open()

    def open(self) -> None:
        self.writer = JournalWriter(self.stream, self.name, policy=HASTY, bounds=self.bounds)
        self.room = JournalRoom(self.writer, self.bounds)
        self.room.look()

    def store(self, size: int) -> bool:
        return self.writer.append("x" * size, wait=False)

    def flush(self) -> None:
        with abandoned_when_stuck(self.writer):
            self.writer.flush()

    def use_up(self) -> None:
        """Store all that is allowed now."""
        while self.store(RECORD):
            while self.store(RECORD):
                pass
            self.flush()

    def fill(self) -> JournalFullError:
        """Store until there is no room; return what the look says then."""
        while True:
            self.use_up()
            if full := self.room.look():
                return full


class World:
    """Several receivers on one stream; while one looks, the others act between its file calls."""

    def __init__(self, count: int, interleaved: Iterator[int]) -> None:
        self.stream = memory_stream()
        self.members = [Member(self.stream.storage, f"r{i}", BYTES) for i in range(count)]
        self.zombies: list[JournalWriter] = []
        self._interleaved = interleaved
        self._busy: set[int] = set()
        for i, member in enumerate(self.members):
            member.storage.before = lambda operation, i=i: self._between(i, operation)

    def step(self, action: str, who: int, size: int) -> None:
        i = who % len(self.members)
        member = self.members[i]
        if action == "look":
            self._look(i)
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
        else:  # the process hangs, another one takes over, and the first one wakes up
            self.zombies.append(member.writer)
            member.open()
            with suppress(JournalError):
                self.zombies[-1].flush()

    def close(self) -> None:
        for writer in (*self.zombies, *(member.writer for member in self.members)):
            writer.abandon()

    def _look(self, i: int) -> None:
        if i not in self._busy:
            self._busy.add(i)
            self.members[i].room.look()
            self._busy.discard(i)

    def _burst(self, i: int) -> None:
        for _ in range(6):
            self._look(i)
            self.members[i].use_up()

    def _between(self, i: int, operation: Operation) -> None:
        if i not in self._busy or threading.current_thread() is not threading.main_thread():
            return
        choice = next(self._interleaved, 0)
        other = (i + 1) % len(self.members)
        if choice == 1:
            self._look(other)
        elif choice == 2:  # all that it may, again and again
            self._burst(other)
        elif choice == 3:  # the one that looks goes on storing
            self.members[i].use_up()


ACTIONS = ["look", "burst", "use up"] * 3 + ["store", "flush", "commit", "takeover"]


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(SEAL, 200_000)),
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
            assert block_bytes(world.stream) <= BOUND
    finally:
        world.close()
        clear_memory()


@pytest.mark.parametrize("between", ["other looks", "other bursts", "goes on itself"])
@pytest.mark.parametrize("filled", [1, 9])
def test_the_bound_holds_whenever_something_comes_between_a_look(between: str, filled: int) -> None:
    choice = 1 + ["other looks", "other bursts", "goes on itself"].index(between)
    for at in range(30):
        world = World(2, itertools.chain([0] * at, [choice], itertools.repeat(0)))
        for _ in range(filled):
            world.members[0].store(RECORD * 4)
            world.members[0].flush()
        for action, who in [("look", 0), ("use up", 0), ("look", 0), ("use up", 0), ("burst", 1)]:
            world.step(action, who, 0)
            assert block_bytes(world.stream) <= BOUND, f"{between} at file call {at}"
        world.step("burst", 0, 0)
        assert block_bytes(world.stream) <= BOUND, f"{between} at file call {at}"
        world.close()
        clear_memory()


def test_of_two_that_claim_at_once_one_gives_way() -> None:
    """Each sees room for its store; together they would exceed the bound."""
    world = World(2, iter(()))
    first, second = world.members
    while block_bytes(world.stream) < 600_000:
        first.store(150_000)
        first.flush()
        world.step("look", 0, 0)
        world.step("look", 1, 0)
    stores = [not member.store(240_000) for member in (first, second)]
    assert stores == [True, True], "they have to ask for room"

    def before(operation: Operation) -> None:
        if operation.kind == "create" and operation.path.endswith("_room.json"):
            first.storage.before = None
            second.room.look()

    first.storage.before = before
    first.room.look()
    assert first.storage.before is None, "the first one had nothing to claim"
    assert [member.store(240_000) for member in (first, second)].count(True) == 1
    first.flush()
    second.flush()
    assert block_bytes(world.stream) <= BOUND
    world.close()


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


def fill_up(*members: Member, upto: int = BOUND) -> None:
    """Let each take all that it is ever allowed, or so much."""
    for member in members:
        for _ in range(12):
            member.room.look()
            while sum(b.size for b in member.stream.blocks(member.writer.id)) < upto:
                if not member.store(RECORD):
                    break
                member.flush()


def test_blocks_that_a_look_counts_twice_give_no_room() -> None:
    """They are published after the writer was asked, and before its folder is listed."""
    world = World(2, iter(()))
    first, second = world.members

    def publish() -> None:
        for _ in range(3):
            assert first.store(155_000)
            first.flush()
        before_next(first, "create", "*_room.json", wait_for_the_others_claim)

    def wait_for_the_others_claim() -> None:
        before_next(first, "read", "*r1*_room.json", wait_for_its_blocks)

    def wait_for_its_blocks() -> None:  # from here on the other one claims unseen
        before_next(first, "list", "*r1*", lambda: fill_up(second, upto=220_000))

    before_next(first, "list", "*", publish)
    first.room.look()
    assert second.writer.end_offset, "nothing came between"
    assert not first.store(230_000), "it has to ask for room"
    first.room.look()
    assert first.store(230_000)
    first.flush()
    first.use_up()
    second.use_up()
    assert block_bytes(world.stream) <= BOUND
    world.close()


def test_what_is_stored_while_a_claim_is_lowered_stays_claimed() -> None:
    world = World(2, iter(()))
    first, second = world.members
    fill_up(second)
    may_publish = threading.Event()

    def before(operation: Operation) -> None:
        if operation.path.endswith(".parquet") and operation.kind == "create":
            assert may_publish.wait(20)
        elif operation.kind == "list" and not first.writer.account().taken.records:
            assert first.store(250_000)

    first.storage.before = before
    first.room.look()  # there is less for it now than it had claimed
    fill_up(second)
    may_publish.set()
    first.flush()
    assert block_bytes(world.stream) <= BOUND
    world.close()


def test_a_writer_that_is_being_replaced_keeps_its_claim_until_it_is_sealed() -> None:
    """Its successor has an epoch by then, and no claim."""
    world = World(2, iter(()))
    first, second = world.members
    zombie = first.writer

    def act() -> None:
        fill_up(second)
        first.use_up()

    came = before_next(first, "create", "*.parquet", act)
    first.open()
    assert came()
    assert block_bytes(world.stream) <= BOUND
    world.close()
    zombie.abandon()


def test_a_lowered_claim_counts_although_its_write_failed() -> None:
    """It took effect, so the room may be another one's by the time that it is wanted again."""
    world = World(2, iter(()))
    first, second = world.members
    fill_up(second)
    first.storage.fail("create", path="*_room.json", after=True)
    with pytest.raises(StorageError):
        first.room.look()  # there is less for it now than it had claimed
    commit_all(world.stream)
    second.room.look()
    assert not first.store(250_000), "it has to ask for room"
    came = before_next(first, "create", "*_room.json", lambda: fill_up(second))
    first.room.look()
    assert came()
    first.store(250_000)
    first.flush()
    first.use_up()
    assert block_bytes(world.stream) <= BOUND
    world.close()


def test_a_claim_whose_lowering_failed_is_lowered_by_a_later_look() -> None:
    world = World(2, iter(()))
    first, second = world.members
    fill_up(second)
    first.storage.fail("create", path="*_room.json")
    with pytest.raises(StorageError):
        first.room.look()  # there is less for it now than it had claimed
    first.room.look()
    fill_up(second)
    assert block_bytes(world.stream) > BOUND * 0.6
    world.close()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_writers_come_close_to_the_bound_and_share_it(count: int) -> None:
    world = World(count, iter(()))
    for _ in range(60):
        for i in range(count):
            world.step("look", i, 0)
            world.step("store", i, 20_000)
            world.step("flush", i, 0)
    held = block_bytes(world.stream)
    assert BOUND * 0.8 <= held <= BOUND
    parts = [sum(b.size for b in m.stream.blocks(m.writer.id)) for m in world.members]
    assert min(parts) >= held / count / 3
    # A consumer moves on: then all of them go on.
    commit_all(world.stream)
    for i in range(count):
        world.step("look", i, 0)
    assert all(member.store(20_000) for member in world.members)
    world.close()


def test_an_idle_writer_gives_back_what_it_claimed() -> None:
    world = World(2, iter(()))
    world.members[1].store(20_000)
    for _ in range(60):
        world.step("look", 0, 0)
        world.step("look", 1, 0)
        world.step("store", 0, 20_000)
        world.step("flush", 0, 0)
    assert block_bytes(world.stream) > BOUND * 0.8
    world.close()


def test_a_waiting_store_goes_on_when_blocks_retire() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    assert "no room" in str(member.fill())
    waiting = threading.Thread(target=member.writer.append, args=("y" * 100_000,))
    waiting.start()
    member.room.look()
    assert waiting.is_alive()
    commit_all(stream)
    member.room.look()
    waiting.join(20)
    assert not waiting.is_alive()
    member.writer.close()
    member.room.leave()
    assert block_bytes(stream) >= 100_000


def test_blocks_that_turn_out_larger_than_reserved_wait_for_room() -> None:
    """A dictionary column is small in memory, and written out in full."""
    schema = pa.schema([pa.field("v", pa.dictionary(pa.int32(), pa.string()))])
    stream = memory_stream(schema)
    writer = JournalWriter(stream, "r0", policy=PATIENT, bounds=BYTES)
    room = JournalRoom(writer, BYTES)
    room.look()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * 2_000])
    stored = 0
    for _ in range(20):
        room.look()
        stored += writer.append_all(pa.record_batch([column], schema=schema), wait=False)
        flushing = threading.Thread(target=suppressed_flush, args=(writer,))
        flushing.start()
        flushing.join(0.05)
        assert block_bytes(stream) <= BOUND
        if flushing.is_alive():
            break
    else:
        pytest.fail("nothing had to wait")
    commit_all(stream)
    room.look()
    flushing.join(20)
    assert not flushing.is_alive()
    assert writer.end_offset == stored * 400
    writer.close()


def suppressed_flush(writer: JournalWriter) -> None:
    with suppress(JournalError):
        writer.flush()


def test_a_store_that_may_not_wait_raises_and_what_is_held_is_sealed() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    member.fill()
    stored = member.writer.account().taken.records
    raised: list[BaseException] = []

    def store() -> None:
        try:
            member.writer.append("y" * 100_000)
        except JournalError as e:
            raised.append(e)

    waiting = threading.Thread(target=store)
    waiting.start()
    member.writer.set_blocking(False)
    waiting.join(20)
    assert [type(e) for e in raised] == [JournalFullError]
    member.writer.close()
    assert len(read_all(stream)) == stored
    assert block_bytes(stream) <= BOUND


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
            member.room.look()
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
        member.room.look()
        taken += member.store(10)
    assert taken == 10
    assert member.room.look() is not None
    member.writer.abandon()


def test_a_store_of_more_than_the_lag_limit_goes_when_nothing_waits() -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", Bounds(max_lag_records=10))
    refused_once = [member.writer.append_all(["x"] * 25, wait=False)]
    member.room.look()
    assert refused_once == [False]
    assert member.writer.append_all(["x"] * 25, wait=False)
    member.writer.flush()
    for _ in range(3):
        assert not member.writer.append_all(["x"] * 25, wait=False)
        assert member.room.look() is not None
    commit_all(stream)
    member.room.look()
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
                member.room.look()
    member.storage.free_up()
    member.writer.close()
    assert block_bytes(stream) <= BOUND


def test_a_claim_ends_with_its_writer() -> None:
    world = World(2, iter(()))
    first, second = world.members
    first.writer.close()
    first.room.leave()
    for _ in range(40):
        second.room.look()
        second.store(25_000)
        second.writer.flush()
    assert block_bytes(world.stream) > BOUND * 0.8
    names = [entry.name for entry in world.stream.storage.list(f"s/{first.writer.id}")]
    assert "_room.json" not in names
    world.close()


@pytest.mark.parametrize("bounds", [{"max_bytes": 1000}, {"max_lag_records": 0}])
def test_bounds_that_cannot_work_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="or leave it out"):
        Bounds(**bounds)


def test_many_threads_together_keep_to_the_bound() -> None:
    """Group commit, real threads, and blocks that are published while others store."""
    stream = memory_stream()
    policy = CommitPolicy(block_interval_ms=5)
    writers = [JournalWriter(stream, f"r{i}", policy=policy, bounds=BYTES) for i in range(3)]
    rooms = [JournalRoom(writer, BYTES) for writer in writers]
    for room in rooms:
        room.look()

    def store(writer: JournalWriter) -> None:
        with suppress(JournalFullError):
            for n in itertools.count():
                writer.append("z" * (SEAL + n % 7 * 3_000))

    threads = [threading.Thread(target=store, args=(w,)) for w in writers for _ in range(2)]
    for thread in threads:
        thread.start()
    for round_ in range(60):
        for room in rooms:
            room.look()
        assert block_bytes(stream) <= BOUND
        if round_ % 10 == 9:
            commit_all(stream)
    for writer in writers:
        writer.set_blocking(False)
    assert eventually(lambda: not any(thread.is_alive() for thread in threads))
    for writer in writers:
        writer.close()
    assert block_bytes(stream) <= BOUND


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
    assert member.room.shortened == Shortened()
    for _ in range(3):
        end = member.writer.end_offset
        job.commit({writer: end}, retained={})
        assert retire(stream) == 0
        for _ in range(10):
            member.use_up()
            assert block_bytes(stream) <= BOUND
            member.room.look()
        assert member.writer.end_offset > end
        held = stream.blocks(writer)
        assert 0 < held[0].start_offset <= end  # what is not committed stays
        assert all(verdict.error is None for verdict in verify_stream(stream))
        assert member.room.shortened.records == held[0].start_offset


def test_of_several_receivers_about_the_same_part_is_given_up() -> None:
    stream = memory_stream()
    writers = [
        write_blocks(stream, [["x" * RECORD]] * blocks, receiver=name, close=False)
        for name, blocks in (("a", 40), ("b", 20))
    ]
    register_consumer(stream, "job", "me").commit({str(w): 100 for w in writers}, retained={})
    size = block_bytes(stream)
    shortened = shorten_retention(stream, size // 2)
    assert size // 2 <= shortened.size_bytes <= size // 2 + 2 * RECORD
    left = [len(stream.blocks(writer)) for writer in writers]
    assert left in ([20, 10], [19, 10], [20, 9])
    commit_consumer(stream, "late", {str(writers[0]): 25, str(writers[1]): 0})
    shorten_retention(stream, size)
    assert [stream.blocks(writer)[0].start_offset for writer in writers] == [25, 20 - left[1]]


def test_that_the_period_is_shortened_is_said(caplog: pytest.LogCaptureFixture) -> None:
    stream = memory_stream()
    member = Member(stream.storage, "r0", BYTES)
    member.fill()
    register_consumer(stream, "job", "me").commit(
        {str(member.writer.id): member.writer.end_offset}, retained={}
    )
    room = WriterRoom(member.writer, ReceiverSettings(bounds=BYTES))
    room.look()
    member.store(RECORD * 10)
    for _ in range(3):
        room.look()
    (said,) = (record.getMessage() for record in caplog.records)
    assert "reprocessing period of stream s is shortened" in said
    assert "that all consumers have committed" in said


def test_keys_of_later_versions_are_ignored() -> None:
    stream = memory_stream()
    writer = WriterId("r0", 0)
    claim = {
        "upto": {"size_bytes": 5, "records": 7, "blocks": 1},
        "bounds": {"max_bytes": 1 << 26, "max_lag_records": None, "max_age_ms": 3},
        "not_yet_known": [],
    }
    stream.storage.create(room_path("s", writer), json.dumps(claim).encode())
    assert read_claim(stream, writer) == Claim(Amount(5, 7), Bounds(1 << 26, None))
