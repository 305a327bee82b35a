"""Takeover: epochs are claimed once, sealed in order, and carry the source's position on."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import (
    DamagedBlockError,
    FencedError,
    JournalError,
    LogFormatError,
    StorageError,
)
from penstock.journal import (
    JournalStream,
    JournalWriter,
    RecordFormat,
    commit_consumer,
    retire,
)
from penstock.journal.epochs import claim_writer, seal_receiver
from penstock.journal.layout import WriterId
from penstock.storage import Storage, open_storage
from penstock.storage.base import temporary_name
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from tests.journal.helpers import PATIENT, Acks, memory_stream, path_of, read_all, write_blocks
from tests.storage.faulty_storage import FaultyStorage
from tests.waiting import WAIT_S


def test_epochs_count_up_for_each_receiver(stream: JournalStream) -> None:
    claims = [claim_writer(stream, receiver)[0] for receiver in ["a", "a", "b", "a-00000001"]]
    assert list(map(str, claims)) == [
        "a-00000000",
        "a-00000001",
        "b-00000000",
        "a-00000001-00000000",
    ]
    assert stream.writers() == sorted(claims)


def test_each_takeover_seals_what_came_before(stream: JournalStream) -> None:
    for position in range(3):
        writer = JournalWriter(stream, "r0", policy=PATIENT)
        writer.append(str(position), position=position)
        writer.flush()
        writer.abandon()
    _, position = claim_writer(stream, "r0")
    assert position == 2
    for writer_id in stream.writers()[:-1]:
        newest = stream.newest(writer_id)
        assert newest is not None
        assert newest.sealed
    assert read_all(stream) == ["0", "1", "2"]


def test_a_position_goes_through_epochs_without_records_and_through_retention(
    stream: JournalStream,
) -> None:
    first = JournalWriter(stream, "r0", policy=PATIENT)
    first.append_all(["a", "b"], position={"at": 2})
    first.flush()
    first.append("c")  # brings none: the block carries the last one on
    first.close()
    commit_consumer(stream, "job", {str(first.id): 3})
    assert retire(stream) == 2
    assert [block.start_offset for block in stream.blocks(first.id)] == [3]
    for _ in range(3):
        writer = JournalWriter(stream, "r0", policy=PATIENT)
        assert writer.position == {"at": 2}
        writer.abandon()
    last = JournalWriter(stream, "r0", policy=PATIENT)
    last.append("d")
    last.close()
    assert JournalWriter(stream, "r0").position == {"at": 2}


def test_a_position_without_records_becomes_durable_with_the_seal(stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append("a", position=1)
    writer.flush()
    writer.append_all([], position=5)
    assert writer.position == 1
    writer.close()
    assert claim_writer(stream, "r0")[1] == 5


def test_a_position_without_records_goes_into_the_next_block(stream: JournalStream) -> None:
    acks = Acks()
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append_all([], position=5, ack=acks.of("nothing"))
    acks.wait_for(1)
    assert writer.position is None  # it is in no file yet
    writer.append("a")
    writer.flush()
    assert writer.position == 5
    writer.abandon()
    assert claim_writer(stream, "r0")[1] == 5


def test_positions_of_receivers_are_their_own(stream: JournalStream) -> None:
    for receiver in ["a", "b"]:
        writer = JournalWriter(stream, receiver, policy=PATIENT)
        writer.append("x", position=receiver)
        writer.close()
    assert claim_writer(stream, "a")[1] == "a"
    assert claim_writer(stream, "b")[1] == "b"
    assert claim_writer(stream, "c")[1] is None


def test_sealing_what_nobody_takes_over(stream: JournalStream) -> None:
    assert not seal_receiver(stream, "r0")
    claim_writer(stream, "r0")
    zombie = JournalWriter(stream, "r0", policy=PATIENT)
    zombie.append("a", position=1)
    zombie.flush()
    assert seal_receiver(stream, "r0")
    assert not seal_receiver(stream, "r0")
    zombie.append("b", position=2)
    with pytest.raises(FencedError):
        zombie.flush()
    zombie.abandon()
    assert len(stream.writers()) == 2
    assert read_all(stream) == ["a"]
    assert claim_writer(stream, "r0") == (WriterId("r0", 2), 1)


def test_a_takeover_costs_the_same_after_many_epochs(storage: Storage) -> None:
    faulty = FaultyStorage(storage)
    stream = JournalStream.create(faulty, "lines", RecordFormat("string"))
    costs = []
    for _ in range(12):
        faulty.operations.clear()
        JournalWriter(stream, "r0", policy=PATIENT).abandon()
        costs.append(len(faulty.operations))
    assert len(set(costs[4:])) == 1


def test_a_takeover_of_a_damaged_writer_is_refused(stream: JournalStream, storage: Storage) -> None:
    writer = write_blocks(stream, [["a"]], close=False)
    path = path_of(stream, writer, 0)
    storage.create(path, storage.read(path)[:-20], overwrite=True)
    with pytest.raises(DamagedBlockError) as caught:
        JournalWriter(stream, "r0")
    assert caught.value.path == storage.uri(path)


def test_a_takeover_that_fails_leaves_no_epoch(stream: JournalStream) -> None:
    writer = write_blocks(stream, [["a"]], close=False)
    path = path_of(stream, writer, 0)
    sound = stream.storage.read(path)
    stream.storage.create(path, sound[:-20], overwrite=True)
    for _ in range(3):
        with pytest.raises(DamagedBlockError):
            JournalWriter(stream, "r0")
    assert stream.writers() == [writer]
    stream.storage.create(path, sound, overwrite=True)
    assert claim_writer(stream, "r0")[0] == WriterId("r0", 1)


class FullDisk(Syscalls):
    """A disk on which no file can be made while it is full."""

    full = False

    def open(self, path: str, flags: int) -> int:
        if self.full and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "full", path)
        return super().open(path, flags)


def test_after_many_failed_starts_a_start_costs_what_it_cost_before(tmp_path: Path) -> None:
    disk = FullDisk()
    faulty = FaultyStorage(LocalStorage(str(tmp_path / "journal"), syscalls=disk))
    stream = JournalStream.create(faulty, "lines", RecordFormat("string"))

    def start() -> list[str]:
        faulty.operations.clear()
        writer = JournalWriter(stream, "r0", policy=PATIENT)
        writer.close()
        return [operation.kind for operation in faulty.operations]

    before = [start() for _ in range(3)][-1]
    disk.full = True
    for _ in range(200):
        with pytest.raises(StorageError):
            claim_writer(stream, "r0")
    disk.full = False
    assert len(stream.writers()) == 4  # the folder of the failed claims is one
    assert start() == before


def test_kills_between_claim_and_first_block_do_not_add_up(stream: JournalStream) -> None:
    faulty = FaultyStorage(stream.storage)
    counted = JournalStream(faulty, stream.name, stream.format)
    costs = []
    for _ in range(50):
        faulty.operations.clear()
        claim_writer(counted, "r0")
        costs.append(len(faulty.operations))
    assert len(set(costs[5:])) == 1


def test_a_copied_writer_folder_is_refused(stream: JournalStream, storage: Storage) -> None:
    writer = write_blocks(stream, [["a"]])
    block = storage.read(path_of(stream, writer, 0))
    storage.create("lines/r0-20241121/00000000000000000000.parquet", block)
    with pytest.raises(LogFormatError, match="the epochs before it are missing") as caught:
        stream.writers()
    assert "move it out" in str(caught.value)


def test_an_epoch_that_a_scan_missed_counts(stream: JournalStream, storage: Storage) -> None:
    # Both are claimed while the folder is scanned; the scan shows only the later one.
    claim_writer(stream, "r0")
    storage.create("lines/r0-00000002/_writer.json", b"{}")
    assert stream.writers() == [WriterId("r0", epoch) for epoch in range(3)]


# -- races --


def test_many_threads_claim_epochs_of_their_own(stream: JournalStream) -> None:
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda _: claim_writer(stream, "r0")[0], range(16)))
    assert sorted(claims) == [WriterId("r0", epoch) for epoch in range(16)]
    for writer in claims[:-1]:
        newest = stream.newest(writer)
        assert newest is None or newest.sealed


def compete(root: str, rounds: int, results: Any) -> None:
    """Take over again and again, and go on with the sequence from the durable position."""
    stream = JournalStream.open(open_storage(root), "lines")
    acked: list[int] = []
    for _ in range(rounds):
        writer = JournalWriter(stream, "r0")
        start = writer.position or 0
        try:
            for number in range(start, start + 5):
                writer.append(
                    str(number), position=number + 1, ack=lambda n=number: acked.append(n)
                )
                writer.flush()
        except FencedError:
            pass  # another process took over
        finally:
            writer.abandon()
    results.put(acked)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_racing_successors_lose_nothing_and_double_nothing(
    stream: JournalStream, tmp_path: Path, kind: str
) -> None:
    root = str(tmp_path / "journal")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    if kind == "threads":
        workers: list[Any] = [
            threading.Thread(target=compete, args=(root, 12, results)) for _ in range(4)
        ]
    else:
        workers = [context.Process(target=compete, args=(root, 12, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    acked = [number for _ in workers for number in results.get(timeout=WAIT_S)]
    for worker in workers:
        worker.join()
    results.close()
    results.join_thread()
    records = list(map(int, read_all(stream)))
    assert records == list(range(len(records)))
    assert len(acked) == len(set(acked))
    assert set(acked) <= set(records)
    assert claim_writer(stream, "r0")[1] == len(records)


# -- a crash at every step --


def crash_at(faulty: FaultyStorage, step: int) -> None:
    """Fail everything from the operation ``step`` on, as a killed process would."""
    count = 0

    def before(_: object) -> None:
        nonlocal count
        count += 1
        if count > step:
            raise StorageError("killed", operation="test")

    faulty.before = before


def live(stream: JournalStream, acked: list[int]) -> None:
    """One attempt of a receiver: takes over, stores three records one by one, closes."""
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    try:
        start = writer.position or 0
        for number in range(start, start + 3):
            writer.append(str(number), position=number + 1, ack=lambda n=number: acked.append(n))
            writer.flush()
        writer.close()
    finally:
        writer.abandon()


def die(stream: JournalStream, step: int, acked: list[int]) -> bool:
    """Live with a crash at ``step``; return whether it came to that."""
    faulty = FaultyStorage(stream.storage)
    crash_at(faulty, step)
    try:
        live(JournalStream(faulty, stream.name, stream.format), acked)
    except (StorageError, JournalError):
        return True
    return False


@pytest.mark.parametrize("next_step", [0, 1, 2, 4, 6, 9, 12, 15])
def test_a_crash_at_every_step_of_a_life_and_then_of_the_next(next_step: int) -> None:
    step, died = 0, True
    while died:
        stream = memory_stream()
        acked: list[int] = []
        live(stream, acked)
        died = die(stream, step, acked)
        die(stream, next_step, acked)
        live(stream, acked)
        records = list(map(int, read_all(stream)))
        assert records == list(range(len(records)))
        assert acked == [number for number in records if number in set(acked)]
        assert claim_writer(stream, "r0")[1] == len(records)
        step += 1
    assert step > 8  # an operation of the storage is a step


def test_a_takeover_removes_the_block_that_a_killed_writer_was_writing(tmp_path: Path) -> None:
    stream = JournalStream.create(open_storage(tmp_path), "s", RecordFormat("string"))
    writer = write_blocks(stream, [["a"]], close=False)
    unfinished = tmp_path / "s" / str(writer) / temporary_name("00000000000000000001.parquet")
    unfinished.write_bytes(b"half a block")
    claim_writer(stream, "r0")
    assert not unfinished.exists()
    assert read_all(stream) == ["a"]
