"""The protocol of a checkpoint location, seen through its public calls."""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation, CommitMetadata, OffsetLog, OffsetSeq
from penstock.errors import (
    CheckpointError,
    ConcurrentDriverError,
    ConfigError,
    LogFormatError,
    LogGapError,
    StorageError,
    StorageFullError,
)
from penstock.storage import Storage, open_storage
from penstock.storage.base import temporary_name
from tests.storage.faulty_storage import FaultyStorage

from .conftest import as_given, offsets_of


def run_batches(location: CheckpointLocation, *batch_ids: int) -> None:
    for batch_id in batch_ids:
        location.plan(batch_id, offsets_of(batch_id))
        location.commit(batch_id)


@contextmanager
def retaining(storage: Storage, batches: int) -> Iterator[CheckpointLocation]:
    location = CheckpointLocation(storage)
    location.acquire(batches)
    try:
        yield location
    finally:
        location.release()


def test_a_new_location(storage: Storage) -> None:
    location = CheckpointLocation(storage)
    plan = location.acquire()
    assert (plan.rerun, plan.next_batch_id) == ((), 0)
    assert str(uuid.UUID(location.read_id())) == location.read_id()
    assert storage.read("metadata").decode() == f'{{"id":"{location.read_id()}"}}'
    location.release()


def test_looking_changes_nothing(storage: Storage) -> None:
    location = CheckpointLocation(storage)
    assert location.recover().rerun == ()
    assert location.recover().next_batch_id == 0
    with pytest.raises(LogFormatError, match="missing"):
        location.read_id()
    assert list(storage.list()) == []


def test_the_id_is_kept(storage: Storage) -> None:
    with CheckpointLocation(storage) as first:
        location_id = first.read_id()
    with CheckpointLocation(storage) as second:
        assert second.read_id() == location_id
    with CheckpointLocation(open_storage(storage.url.rsplit("/", 1)[0] + "/other")) as other:
        assert other.read_id() != location_id


def test_a_driver_takes_up_where_the_last_one_was(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        run_batches(location, 0, 1)
        location.plan(2, offsets_of(2))
    location = CheckpointLocation(storage)
    plan = location.acquire()
    assert (plan.rerun, plan.next_batch_id) == ((2,), 3)
    assert as_given(location.offsets.require(2)) == offsets_of(2)
    location.commit(2, next_batch_watermark_ms=5)
    run_batches(location, 3)
    assert location.recover().rerun == ()
    assert location.recover().next_batch_id == 4
    assert location.commits.get(2) == CommitMetadata(5)
    location.release()


def test_batches_may_be_committed_in_any_order(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        for batch_id in range(4):
            location.plan(batch_id, offsets_of(batch_id))
        location.commit(3)
        location.commit(1)
    plan = CheckpointLocation(storage).recover()
    assert (plan.rerun, plan.next_batch_id) == ((0, 2), 4)


def test_a_commit_may_be_repeated(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        run_batches(location, 0, 1)
        for batch_id in (1, 0, 0):
            location.commit(batch_id)
        with pytest.raises(ConcurrentDriverError):
            location.commit(0, next_batch_watermark_ms=1)
        assert location.recover().next_batch_id == 2


def test_order_is_checked(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        with pytest.raises(CheckpointError, match="0 is the next"):
            location.plan(1, offsets_of(1))
        with pytest.raises(CheckpointError, match="never planned"):
            location.commit(0)
        assert list(storage.list("offsets")) == list(storage.list("commits")) == []


def test_only_the_driver_may_write(storage: Storage) -> None:
    location = CheckpointLocation(storage)
    with location:
        run_batches(location, 0)
    for call in (
        lambda: location.plan(1, offsets_of(1)),
        lambda: location.commit(0),
        location.retire,
    ):
        with pytest.raises(CheckpointError, match="is not the driver"):
            call()


def test_a_batch_that_failed_is_not_committed(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        run_batches(location, 0)
        location.plan(1, offsets_of(1))
        location.run(1)
        location.fail(1)
        with pytest.raises(CheckpointError, match="is failed and cannot become committed"):
            location.commit(1)
        location.commit(0)  # a repeated one changes nothing
        assert location.undone() == [1]
        assert location.commits.batch_ids() == (0,)


def test_without_locks_the_offsets_are_the_fence() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    first, second = CheckpointLocation(storage), CheckpointLocation(storage)
    first.acquire()
    run_batches(first, 0)
    first.plan(1, offsets_of(1))
    assert second.acquire().rerun == (1,)
    assert first.read_id() == second.read_id()
    second.commit(1)
    run_batches(second, 2)
    with pytest.raises(ConcurrentDriverError, match="it planned batch 2"):
        first.commit(1)  # it is there, so another driver ran the batch again
    for call in (lambda: first.plan(2, offsets_of(2)), lambda: first.commit(1), first.retire):
        with pytest.raises(ConcurrentDriverError):
            call()
    run_batches(second, 3)


def test_equal_plans_of_two_drivers_are_not_equal() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}")
    first, second = CheckpointLocation(storage), CheckpointLocation(storage)
    first.acquire()
    second.acquire()
    run_batches(first, 0)
    with pytest.raises(ConcurrentDriverError) as caught:
        second.plan(0, offsets_of(0))
    assert caught.value.ids == {"batch_id": 0}
    run_batches(first, 1)


def test_a_plan_that_failed_can_be_repeated(storage: Storage) -> None:
    faulty = FaultyStorage(storage)
    with CheckpointLocation(faulty) as location:
        for after in (False, True):
            batch_id = location.recover().next_batch_id
            faulty.fail("create", path="offsets/*", after=after)
            with pytest.raises(StorageError):
                location.plan(batch_id, offsets_of(batch_id))
            faulty.fail("create", path="commits/*", after=after)
            location.plan(batch_id, offsets_of(batch_id))
            with pytest.raises(StorageError):
                location.commit(batch_id)
            location.commit(batch_id)
        assert location.recover().rerun == ()


def test_a_full_disk_leaves_the_location_as_it_was(storage: Storage) -> None:
    faulty = FaultyStorage(storage)
    with CheckpointLocation(faulty) as location:
        run_batches(location, 0)
        faulty.fill_up()
        with pytest.raises(StorageFullError):
            location.plan(1, offsets_of(1))
        plan = location.recover()
        assert (plan.rerun, plan.next_batch_id) == ((), 1)
        faulty.free_up()
        run_batches(location, 1)


def test_retire_keeps_the_last_hundred_as_spark_does(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        for batch_id in range(115):
            run_batches(location, batch_id)
            location.retire()
        kept = tuple(range(10, 115))  # ten go at a time
        assert location.offsets.batch_ids() == location.commits.batch_ids() == kept
        assert location.offsets.orphans() == location.commits.orphans() == ()
    assert CheckpointLocation(storage).recover().next_batch_id == 115


def test_retire_keeps_what_is_not_done_and_the_newest_that_is(storage: Storage) -> None:
    with retaining(storage, 1) as location:
        for batch_id in range(8):
            location.plan(batch_id, offsets_of(batch_id))
        for batch_id in (0, 1, 2, 4):
            location.commit(batch_id)
        location.plan(8, offsets_of(8))
        assert location.retire() == 2  # batch 3 begins where batch 2 ends
        assert location.offsets.batch_ids() == (2, 3, 4, 5, 6, 7, 8)
        assert location.commits.batch_ids() == (2, 4)
        location.commit(3)
        location.plan(9, offsets_of(9))
        assert location.retire() == 4
        assert location.commits.batch_ids() == (4,)
        assert location.recover().rerun == (5, 6, 7, 8, 9)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_retire_that_failed_makes_no_batch_look_undone(storage: Storage, nth: int) -> None:
    faulty = FaultyStorage(storage)
    with retaining(faulty, 1) as location:
        run_batches(location, *range(5))
        faulty.fail("delete", nth=nth)
        with pytest.raises(StorageError):
            location.retire()
        assert location.recover().rerun == ()
        assert location.retire() == 3
        assert location.offsets.batch_ids() == location.commits.batch_ids() == (3, 4)


def test_retaining_nothing_is_refused(local_storage: Storage) -> None:
    with pytest.raises(ConfigError):
        CheckpointLocation(local_storage).acquire(0)


def test_the_cost_of_a_batch_does_not_grow(local_storage: Storage) -> None:
    """Two creates, one listing and, once there is something to purge, two deletes."""
    faulty = FaultyStorage(local_storage)
    counts = set()
    with retaining(faulty, 5) as location:
        for batch_id in range(30):
            faulty.operations.clear()
            run_batches(location, batch_id)
            location.retire()
            kinds = [o.kind for o in faulty.operations]
            if batch_id > 6:
                counts.add((kinds.count("create"), kinds.count("delete"), kinds.count("list")))
                assert "read" not in kinds
    assert counts == {(2, 2, 1)}


def test_threads_commit_and_retire_at_once(local_storage: Storage) -> None:
    with retaining(local_storage, 3) as location, ThreadPoolExecutor(4) as pool:
        done = []
        lock = threading.Lock()

        def finish(batch_id: int) -> None:
            location.commit(batch_id)
            location.retire()
            with lock:
                done.append(batch_id)

        for batch_id in range(60):
            location.plan(batch_id, offsets_of(batch_id))
            pool.submit(finish, batch_id)
        pool.shutdown()
        assert sorted(done) == list(range(60))
        location.plan(60, offsets_of(60))
        location.commit(60)
        location.retire()
        assert location.offsets.batch_ids() == (57, 58, 59, 60)
        assert location.recover().rerun == ()


def test_gaps_are_refused_when_a_driver_starts(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        run_batches(location, *range(4))
    storage.delete("offsets/1")
    with pytest.raises(LogGapError, match="offsets/1") as caught:
        CheckpointLocation(storage).acquire()
    assert caught.value.path == storage.url
    assert "restore" in str(caught.value.hint)
    assert "acked records stay in this location's folder journal" in str(caught.value)


def test_a_location_whose_id_is_lost_is_refused(storage: Storage) -> None:
    with CheckpointLocation(storage) as location:
        run_batches(location, 0)
    storage.delete("metadata")
    with pytest.raises(LogFormatError, match="missing"):
        CheckpointLocation(storage).acquire()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"id":"x"}',
        b'{"id":"5E3B8F8E-0000-4000-8000-000000000000"}',
        b'{"id":"5e3b8f8e-0000-4000-8000-000000000000"}\n',
        b'{"id":"5e3b8f8e-0000-4000-8000-000000000000","a":1}',
    ],
)
def test_damaged_metadata_is_refused(storage: Storage, content: bytes) -> None:
    storage.create("metadata", content)
    with pytest.raises(LogFormatError) as caught:
        CheckpointLocation(storage).acquire()
    assert caught.value.path == storage.uri("metadata")
    assert caught.value.hint


NEWER = (
    "The log file was produced by a newer version of Spark and cannot be read by this version. "
    "Please upgrade."
)


@pytest.mark.parametrize("folder", ["offsets", "commits"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content.replace(b"v1", b"v2", 1), NEWER),
        (lambda content: content.replace(b"v1", b"", 1), "failed to read correct log version"),
        (lambda content: b"", "Incomplete log file"),
        (lambda content: content[:-1], "Log file was malformed"),
    ],
    ids=["newer", "no version", "empty", "torn"],
)
def test_a_newest_entry_that_cannot_be_read_is_refused(
    storage: Storage, folder: str, damage: Callable[[bytes], bytes], message: str
) -> None:
    with CheckpointLocation(storage) as location:
        run_batches(location, 0, 1)
    path = f"{folder}/1"
    content = storage.read(path)
    storage.delete(f"{folder}/.1.crc")
    storage.create(path, damage(content), overwrite=True)
    with pytest.raises(LogFormatError, match=re.escape(message)) as caught:
        CheckpointLocation(storage).acquire()
    assert caught.value.path == storage.uri(path)
    if folder == "commits":
        assert f"delete {storage.uri(path)}: batch 1 then runs again" in str(caught.value.hint)
        storage.delete(path)
        assert CheckpointLocation(storage).recover().rerun == (1,)


def test_urls_and_paths_name_the_same_location(tmp_path: Path) -> None:
    with CheckpointLocation(tmp_path) as location:
        run_batches(location, 0)
    assert CheckpointLocation(f"file://{tmp_path}").recover().next_batch_id == 1
    assert CheckpointLocation(os.fspath(tmp_path)).url == f"file://{tmp_path}"


def test_a_driver_removes_what_a_killed_one_left_of_entries(tmp_path: Path) -> None:
    with CheckpointLocation(tmp_path):
        pass
    left = [tmp_path / log / temporary_name("7") for log in ("offsets", "commits")]
    for file in left:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"v1")
    with CheckpointLocation(tmp_path):
        assert not any(file.exists() for file in left)


def test_a_kept_from_that_is_no_batch_id_is_refused(storage: Storage) -> None:
    conf = {"spark.penstock.keptFrom": "9" * 5000}
    OffsetLog(storage).add(0, OffsetSeq(1000, conf=conf, sources=("{}",)))
    with pytest.raises(LogFormatError, match="which is not a batch id"):
        CheckpointLocation(storage).acquire()
