"""The writer's promises: acks, order, group commit, back pressure, failure, fencing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import (
    AlreadyExistsError,
    ConfigError,
    FencedError,
    JournalError,
    StorageError,
    StorageFullError,
    WriterBrokenError,
)
from penstock.journal import CommitPolicy, JournalStream, JournalWriter, RecordFormat, read_records
from penstock.storage import Storage
from tests.journal.gate import Gate
from tests.journal.helpers import (
    PATIENT,
    WAIT_S,
    Acks,
    abandoned_when_stuck,
    memory_stream,
    read_all,
    whole_range,
    write_blocks,
)
from tests.storage.faulty_storage import FaultyStorage
from tests.waiting import eventually


@pytest.fixture
def faulty(storage: Storage) -> FaultyStorage:
    return FaultyStorage(storage)


@pytest.fixture
def faulty_stream(faulty: FaultyStorage) -> JournalStream:
    return JournalStream.create(faulty, "lines", RecordFormat("string"))


def block_starts(stream: JournalStream, writer: JournalWriter) -> list[int]:
    return [block.start_offset for block in stream.blocks(writer.id)]


def takes_nothing(writer: JournalWriter) -> bool:
    """Whether a full writer refuses stores for good, rather than for want of room."""
    try:
        return writer.append("z" * 100, wait=False)
    except WriterBrokenError:
        return True


# -- acks and order --


def test_an_ack_comes_after_its_publish(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    acks = Acks()
    acked_before_publish: list[list[Any]] = []
    faulty.before = lambda op: acked_before_publish.append(list(acks.received))
    with_acks = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    acked_before_publish.clear()
    for token in range(3):
        with_acks.append(str(token), ack=acks.of(token))
        acks.wait_for(token + 1)
    assert acked_before_publish == [[], [0], [0, 1]]
    with_acks.close()


def test_acks_come_in_the_order_of_the_stores(stream: JournalStream) -> None:
    acks = Acks()
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(spacing_ms=0, max_block_records=7))
    for token in range(500):
        writer.append(str(token), ack=acks.of(token))
    writer.close()
    assert acks.received == list(range(500))
    assert read_all(stream) == [str(token) for token in range(500)]


def test_stores_of_many_threads_are_all_kept_each_in_its_order(stream: JournalStream) -> None:
    acks = Acks()
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(spacing_ms=0))

    def store(thread: int) -> None:
        for number in range(200):
            writer.append(f"{thread} {number}", ack=acks.of((thread, number)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store, range(8)))
    writer.close()
    records = [tuple(map(int, record.split())) for record in read_all(stream)]
    assert records == acks.received  # one order for both
    for thread in range(8):
        assert [n for t, n in records if t == thread] == list(range(200))


def test_an_ack_that_raises_stops_nothing(
    stream: JournalStream, caplog: pytest.LogCaptureFixture
) -> None:
    acks = Acks()

    def rude() -> None:
        raise SystemExit("the source is gone")

    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append("a", ack=rude)
    writer.append("b", ack=acks.of("b"))
    writer.close()
    assert acks.received == ["b"]
    assert "An ack of writer r0-00000000" in caplog.text


def test_an_empty_store_is_acked_in_its_turn(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    acks = Acks()
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    writer.append_all([], ack=acks.of("first"))
    acks.wait_for(1)
    gate = Gate(faulty, "create")
    writer.append("a", ack=acks.of("a"))
    gate.wait_reached()
    writer.append_all([], ack=acks.of("behind a"))
    assert acks.received == ["first"]
    gate.open()
    acks.wait_for(3)
    assert acks.received == ["first", "a", "behind a"]
    writer.close()
    assert read_all(faulty_stream) == ["a"]


def test_empty_stores_take_no_room(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=PATIENT, max_buffered_bytes=1000)
    with abandoned_when_stuck(writer):
        for _ in range(2000):
            writer.append_all([], position=1)
            writer.append_all(pa.table({"value": pa.array([], pa.string())}))
        writer.append("a")
    writer.close()
    assert read_all(stream) == ["a"]


# -- when a group is published --


def test_an_idle_writer_publishes_at_once_for_a_waiter(stream: JournalStream) -> None:
    acks = Acks()
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append("a")
    writer.append("b", ack=acks.of("b"))
    acks.wait_for(1)  # long before the ten minutes of the block interval
    writer.append("c")
    writer.flush()
    assert writer.end_offset == 3
    writer.close()


def test_without_a_waiter_a_group_waits_for_the_block_interval(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(block_interval_ms=40))
    began_s = time.monotonic()
    writer.append("a")
    while writer.end_offset == 0:
        assert time.monotonic() - began_s < WAIT_S
        time.sleep(0.001)
    assert time.monotonic() - began_s >= 0.04
    writer.close()


def test_stores_during_a_publish_share_the_next_block(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    acks = Acks()
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    gate = Gate(faulty, "create")
    writer.append("0", ack=acks.of(0))
    gate.wait_reached()
    for token in range(1, 100):
        writer.append(str(token), ack=acks.of(token))
    gate.open()
    acks.wait_for(100)
    assert block_starts(faulty_stream, writer) == [0, 1]
    writer.close()


def test_publishes_under_load_are_spaced(stream: JournalStream) -> None:
    acks = Acks()
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(spacing_ms=50))
    began_s = time.monotonic()
    for token in range(4):
        writer.append(str(token), ack=acks.of(token))
        acks.wait_for(token + 1)
    assert time.monotonic() - began_s >= 3 * 0.05
    writer.close()


@pytest.mark.parametrize(
    ("policy", "records"),
    [
        (CommitPolicy(600_000, max_block_records=10), 10),
        (CommitPolicy(600_000, max_block_bytes=1000), 6),  # of 105 + 64 bytes
    ],
)
def test_caps_and_order_hold_also_while_the_store_is_slow(
    faulty_stream: JournalStream, faulty: FaultyStorage, policy: CommitPolicy, records: int
) -> None:
    writer = JournalWriter(faulty_stream, "r0", policy=policy)
    faulty.before = lambda op: time.sleep(0.005) if op.kind == "create" else None
    for number in range(100):
        writer.append(f"{number:0105d}")
    writer.close()
    assert block_starts(faulty_stream, writer)[:-1] == list(range(0, 100, records))
    created = [op.path for op in faulty.operations if op.path.endswith(".parquet")]
    assert created == sorted(created)


def test_records_of_one_store_are_never_divided(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(600_000, max_block_records=10))
    writer.append_all([str(number) for number in range(25)])
    writer.append_all([str(number) for number in range(25, 30)])
    writer.close()
    assert block_starts(stream, writer) == [0, 25, 30]


# -- memory --


def test_a_store_blocks_until_there_is_room(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    policy = CommitPolicy(600_000, max_block_bytes=1 << 30, max_block_records=1 << 30)
    writer = JournalWriter(faulty_stream, "r0", policy=policy, max_buffered_bytes=20_000)
    gate = Gate(faulty, "create")
    stored = threading.Semaphore(0)

    def store() -> None:
        for _ in range(200):
            writer.append("x" * 936)  # and 64 bytes for the object
            stored.release()

    thread = threading.Thread(target=store)
    thread.start()
    gate.wait_reached()
    for _ in range(20):
        assert stored.acquire(timeout=WAIT_S)
    assert not stored.acquire(timeout=0.05)
    gate.open()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    writer.close()
    assert len(read_all(faulty_stream)) == 200


def test_records_without_content_take_room_too(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT, max_buffered_bytes=6400)
    gate = Gate(faulty, "create")
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: [writer.append("") for _ in range(1000)])
        gate.wait_reached()
        assert not future.done()
        gate.open()
        future.result(WAIT_S)
    writer.close()
    assert writer.end_offset == 1000


def test_a_store_larger_than_the_room_passes_alone(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=PATIENT, max_buffered_bytes=100)
    for letter in "abc":
        writer.append(letter * 1000)
    writer.close()
    assert read_all(stream) == [letter * 1000 for letter in "abc"]


@pytest.mark.parametrize("end", ["fail", "abandon", "close"])
def test_a_blocked_store_ends_with_the_writer(
    faulty_stream: JournalStream, faulty: FaultyStorage, end: str
) -> None:
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT, max_buffered_bytes=200)
    gate = Gate(faulty, "create")
    writer.append("x" * 100, ack=lambda: None)
    gate.wait_reached()
    with ThreadPoolExecutor(2) as pool:
        blocked = pool.submit(writer.append, "y" * 100)
        if end == "fail":
            gate.open(StorageError("the disk is gone"))
        else:
            ending = pool.submit(getattr(writer, end))
            assert eventually(lambda: takes_nothing(writer))
            gate.open()
            ending.result(WAIT_S)
        if end == "close" and blocked.exception(WAIT_S) is None:
            assert read_all(faulty_stream) == ["x" * 100, "y" * 100]  # it came just in time
        else:
            assert isinstance(blocked.exception(WAIT_S), WriterBrokenError)
    writer.abandon()


# -- failure --


@pytest.mark.parametrize("after", [False, True], ids=["without effect", "with effect"])
def test_nothing_is_acked_past_a_failed_publish(
    faulty_stream: JournalStream, faulty: FaultyStorage, after: bool
) -> None:
    acks = Acks()
    failures: list[JournalError] = []
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT, on_failure=failures.append)
    writer.append("a", position=1, ack=acks.of("a"))
    acks.wait_for(1)
    faulty.fail("create", path="*.parquet", after=after)
    writer.append("b", position=2, ack=acks.of("b"))
    with pytest.raises(WriterBrokenError):
        writer.flush()
    for call in (lambda: writer.append("c", ack=acks.of("c")), writer.flush, writer.close):
        with pytest.raises(WriterBrokenError):
            call()
    assert acks.received == ["a"]
    assert writer.end_offset == 1
    assert failures == [writer.error]
    writer.abandon()

    successor = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    durable = ["a", "b"] if after else ["a"]
    assert successor.position == len(durable)
    successor.append("next")
    successor.close()
    assert read_all(faulty_stream) == [*durable, "next"]


def test_a_failure_names_the_block_and_the_fix(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    faulty.fill_up()
    writer.append("a")
    with pytest.raises(WriterBrokenError) as caught:
        writer.flush()
    error = writer.error
    assert error is not None
    assert isinstance(error.cause, StorageFullError)
    assert caught.value.ids == {"stream": "lines", "writer": "r0-00000000"}
    assert str(caught.value.path).endswith("/lines/r0-00000000/00000000000000000000.parquet")
    assert "open a new writer" in str(caught.value)
    writer.abandon()


def test_blocks_behind_a_failed_one_are_not_published(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    acks = Acks()
    policy = CommitPolicy(600_000, max_block_records=1)
    writer = JournalWriter(faulty_stream, "r0", policy=policy)
    gate = Gate(faulty, "create")
    writer.append("0", ack=acks.of(0))
    gate.wait_reached()
    for token in range(1, 4):  # encoded, queued, waiting
        writer.append(str(token), ack=acks.of(token))
    gate.open(StorageError("the disk is gone"))
    with pytest.raises(WriterBrokenError):
        writer.flush()
    writer.abandon()
    assert acks.received == []
    assert read_all(faulty_stream) == []


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
@pytest.mark.parametrize("place", ["encode", "create", "on_failure"])
def test_an_unforeseen_exception_breaks_the_writer_and_hangs_nobody(
    faulty_stream: JournalStream,
    faulty: FaultyStorage,
    place: str,
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def surprise(*_: Any) -> None:
        raise error("nobody thought of this")

    on_failure: Callable[[JournalError], None] | None = None
    if place == "encode":
        monkeypatch.setattr(RecordFormat, "encode", surprise)
    elif place == "create":
        faulty.fail("create", path="*.parquet", error=error("nobody thought of this"))
    else:
        faulty.fail("create", path="*.parquet")
        on_failure = surprise
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT, on_failure=on_failure)
    writer.append("a")
    with pytest.raises(WriterBrokenError):
        writer.flush()
    with pytest.raises(WriterBrokenError):
        writer.close()
    writer.abandon()


# -- ends --


def test_close_publishes_the_rest_and_seals(stream: JournalStream) -> None:
    acks = Acks()
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append("a", position={"at": 1}, ack=acks.of("a"))
    writer.append_all(["b", "c"])
    writer.close()
    writer.close()
    writer.abandon()
    seal = stream.newest(writer.id)
    assert seal is not None
    assert (seal.start_offset, seal.count, seal.sealed) == (3, 0, True)
    assert seal.position == {"at": 1}
    assert acks.received == ["a"]
    assert read_all(stream) == ["a", "b", "c"]
    with pytest.raises(WriterBrokenError, match="closed"):
        writer.append("d")
    writer.flush()  # all that was appended is durable


def test_abandon_publishes_nothing_more(stream: JournalStream) -> None:
    failures: list[JournalError] = []
    writer = JournalWriter(stream, "r0", policy=PATIENT, on_failure=failures.append)
    writer.append("a")
    writer.flush()
    writer.append("b")
    writer.abandon()
    writer.abandon()
    assert failures == []  # whoever abandons it knows
    assert read_all(stream) == ["a"]
    newest = stream.newest(writer.id)
    assert newest is not None
    assert not newest.sealed
    for call in (lambda: writer.append("c"), writer.flush, writer.close):
        with pytest.raises(WriterBrokenError, match="abandoned"):
            call()


def test_a_seal_that_fails_is_told_and_made_up_for(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    acks = Acks()
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    writer.append("a", ack=acks.of("a"))
    acks.wait_for(1)
    faulty.fail("create", path="*.parquet")
    with pytest.raises(WriterBrokenError):
        writer.close()
    writer.close()  # a second attempt is allowed
    assert read_all(faulty_stream) == ["a"]


def test_two_threads_may_close(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append("a")
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(writer.close) for _ in range(4)]:
            future.result(WAIT_S)
    assert read_all(stream) == ["a"]


def test_no_thread_outlives_its_writer(stream: JournalStream) -> None:
    before = threading.active_count()
    writers = [JournalWriter(stream, f"r{i}", policy=PATIENT) for i in range(4)]
    for writer in writers[:2]:
        writer.close()
    for writer in writers[2:]:
        writer.abandon()
    assert threading.active_count() == before


# -- fencing --


def test_a_zombie_that_wakes_can_neither_publish_nor_ack(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    acks = Acks()
    failures: list[JournalError] = []
    zombie = JournalWriter(faulty_stream, "r0", policy=PATIENT, on_failure=failures.append)
    zombie.append("a", position=1, ack=acks.of("a"))
    acks.wait_for(1)
    gate = Gate(faulty, "create")
    zombie.append("b", position=2, ack=acks.of("b"))
    gate.wait_reached()  # it is stopped in front of its publish

    successor = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    assert successor.position == 1
    successor.append("b again", position=2, ack=acks.of("b again"))
    successor.flush()

    gate.open()
    with pytest.raises(FencedError):
        zombie.flush()
    with pytest.raises(FencedError):
        zombie.append("c", ack=acks.of("c"))
    with pytest.raises(FencedError):
        zombie.close()
    zombie.abandon()
    successor.close()
    assert acks.received == ["a", "b again"]
    assert [type(error) for error in failures] == [FencedError]
    assert isinstance(failures[0].cause, AlreadyExistsError)
    assert read_all(faulty_stream) == ["a", "b again"]


def test_its_own_block_behind_a_lost_answer_fences_no_writer(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    """Drivers of object stores repeat a create whose answer was lost, and find their own file."""
    writer = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    taken = AlreadyExistsError("the name is taken", operation="create")
    faulty.fail("create", path="*/00000000000000000000.parquet", after=True, error=taken)
    writer.append("a", position=1)
    with pytest.raises(WriterBrokenError, match="the writer broke"):
        writer.flush()
    writer.abandon()
    following = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    assert following.position == 1  # so a source with positions sends it once
    following.close()
    assert read_all(faulty_stream) == ["a"]


def test_a_zombie_that_was_quicker_is_seen_by_its_successor(
    faulty_stream: JournalStream, faulty: FaultyStorage
) -> None:
    zombie = JournalWriter(faulty_stream, "r0", policy=PATIENT)
    zombie.append("a", position=1)
    zombie.flush()
    # The successor has looked, and is about to seal: now the zombie publishes once more.
    gate = Gate(faulty, "create", path="*/00000000000000000001.parquet")
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(JournalWriter, faulty_stream, "r0", policy=PATIENT)
        gate.wait_reached()
        zombie.append("b", position=2)
        zombie.flush()
        gate.open()
        successor = opening.result(WAIT_S)
    assert successor.position == 2
    zombie.append("c")
    with pytest.raises(FencedError):
        zombie.flush()
    zombie.abandon()
    successor.close()
    assert read_all(faulty_stream) == ["a", "b"]


def test_closing_a_writer_that_was_sealed_in_time_is_no_error(stream: JournalStream) -> None:
    first = JournalWriter(stream, "r0", policy=PATIENT)
    first.append("a")
    first.flush()
    JournalWriter(stream, "r0").close()
    first.close()  # all of it became durable, and the seal is there


# -- arguments --


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        {"max_buffered_bytes": 0},
        {"max_buffered_bytes": 1 << 40},
    ],
)
def test_wrong_options_fail_before_an_epoch_is_claimed(
    stream: JournalStream, options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        JournalWriter(stream, "r0", **options)
    assert stream.writers() == []


@pytest.mark.parametrize("receiver", ["", "../x", "a/b", "-a", "a b"])
def test_wrong_receiver_names_are_refused(stream: JournalStream, receiver: str) -> None:
    with pytest.raises(ConfigError):
        JournalWriter(stream, receiver)


@pytest.mark.parametrize("compression", ["none", "lz4", "snappy", "zstd"])
def test_compressions(stream: JournalStream, compression: str) -> None:
    records = ["the same line"] * 5000
    writer = write_blocks(stream, [records], compression=compression)
    assert list(read_records(stream, [whole_range(stream, writer)])) == records
    size = stream.blocks(writer)[0].size
    assert (size > 50_000) == (compression == "none")


def test_a_changed_position_object_does_not_change_what_was_stored() -> None:
    stream = memory_stream()
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    position = {"file": 1}
    writer.append("a", position=position)
    position["file"] = 2
    writer.flush()
    assert writer.position == {"file": 1}
    writer.close()
