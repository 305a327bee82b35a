"""FaultyStorage does the faults that were ordered, and nothing else."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import ConfigError, NotFoundError, StorageError, StorageFullError
from penstock.storage import open_storage
from penstock.storage.local import LocalStorage
from tests.storage.faulty_storage import FaultyStorage, Operation
from tests.waiting import WAIT_S


@pytest.fixture
def storage(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(tmp_path))


def test_the_nth_operation_fails_once_without_effect(storage: FaultyStorage) -> None:
    storage.fail("create", nth=2)

    storage.create("1", b"x")
    with pytest.raises(StorageError) as caught:
        storage.create("2", b"x")
    storage.create("3", b"x")

    assert isinstance(caught.value.cause, OSError)
    assert [entry.name for entry in storage.list()] == ["1", "3"]


def test_a_failure_may_come_after_the_effect(storage: FaultyStorage) -> None:
    storage.fail("create", after=True)

    with pytest.raises(StorageError):
        storage.create("file", b"x")

    assert storage.read("file") == b"x"


def test_only_matching_paths_and_kinds_count(storage: FaultyStorage) -> None:
    storage.fail("create", nth=2, path="commits/*", error=NotFoundError("chosen"))

    storage.create("commits/0", b"x")
    storage.create("offsets/1", b"x")
    storage.read("commits/0")
    with pytest.raises(NotFoundError, match="chosen"):
        storage.create("commits/1", b"x")


@pytest.mark.parametrize("kind", ["create", "read", "list", "delete", "exists"])
def test_each_kind_of_operation_can_fail(storage: FaultyStorage, kind: str) -> None:
    storage.create("file", b"x")
    storage.fail(kind)  # type: ignore[arg-type]
    acts: dict[str, Callable[[], object]] = {
        "create": lambda: storage.create("file", b"y", overwrite=True),
        "read": lambda: storage.read("file"),
        "list": lambda: storage.list(),
        "delete": lambda: storage.delete("file"),
        "exists": lambda: storage.exists("file"),
    }

    with pytest.raises(StorageError):
        acts[kind]()

    assert storage.read("file") == b"x"
    acts[kind]()


def test_two_failures_are_both_done(storage: FaultyStorage) -> None:
    storage.fail("create", nth=1)
    storage.fail("create", nth=2)

    for _ in range(2):
        with pytest.raises(StorageError):
            storage.create("file", b"x")
    storage.create("file", b"x")


def test_it_counts_from_one(storage: FaultyStorage) -> None:
    with pytest.raises(ConfigError, match="counts from 1"):
        storage.fail("create", nth=0)


def test_a_full_disk_until_it_is_freed(storage: FaultyStorage) -> None:
    storage.fill_up(after_bytes=10)

    storage.create("1", b"12345678")
    with pytest.raises(StorageFullError):
        storage.create("2", b"123")
    storage.create("3", b"12")
    storage.free_up()
    storage.create("2", b"123")

    assert [entry.name for entry in storage.list()] == ["1", "2", "3"]


def test_damage_shows_in_every_slice_until_repaired(storage: FaultyStorage) -> None:
    storage.create("blocks/0", b"0123456789")
    storage.create("other", b"0123456789")
    storage.damage("blocks/*", flip_at=3)
    storage.damage("blocks/*", cut_at=-2)

    flipped = b"012" + bytes([ord("3") ^ 0xFF]) + b"4567"
    assert storage.read("blocks/0") == flipped
    assert storage.read("blocks/0", -6, -2) == flipped[-6:-2]
    assert storage.read("other") == b"0123456789"

    storage.repair()
    assert storage.read("blocks/0", 2) == b"23456789"


def test_a_flip_beyond_the_end_changes_nothing(storage: FaultyStorage) -> None:
    storage.create("file", b"abc")
    storage.damage("file", flip_at=3)

    assert storage.read("file") == b"abc"


def test_operations_are_recorded_in_order(storage: FaultyStorage) -> None:
    storage.fail("create")
    with pytest.raises(StorageError):
        storage.create("a/1", b"123")
    storage.list("a")
    storage.exists("a/1")
    storage.delete("a/1")

    assert storage.operations == [
        Operation("create", "a/1", 3),
        Operation("list", "a"),
        Operation("exists", "a/1"),
        Operation("delete", "a/1"),
    ]


def test_a_hook_can_hold_a_thread_before_an_operation(storage: FaultyStorage) -> None:
    reached, go = threading.Event(), threading.Event()

    def hold(operation: Operation) -> None:
        if operation.kind == "create" and operation.path == "slow":
            reached.set()
            go.wait(WAIT_S)

    storage.before = hold
    thread = threading.Thread(target=storage.create, args=("slow", b"x"))
    thread.start()
    assert reached.wait(WAIT_S)

    storage.create("quick", b"x")
    assert [entry.name for entry in storage.list()] == ["quick"]

    go.set()
    thread.join()
    assert [entry.name for entry in storage.list()] == ["quick", "slow"]


def test_faults_stay_in_their_process(storage: FaultyStorage) -> None:
    storage.fail("create")
    copy = pickle.loads(pickle.dumps(storage))
    copy.create("file", b"x")

    assert isinstance(copy, LocalStorage)
