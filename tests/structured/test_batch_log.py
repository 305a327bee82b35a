"""The log of a Parquet sink: two of everything, kills, zombies, folds. Without Spark."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from penstock.errors import ConfigError, LogFormatError, SinkError, StorageError
from penstock.storage import Storage, open_storage
from penstock.storage.local import LocalStorage
from penstock.structured.sinks import batch_log
from penstock.structured.sinks.batch_log import BatchLog, Published
from tests.forked import run_all_forked
from tests.strace import kill_points, needs_strace, traced

LOCATION, OUTPUT = "5f1c", "orders"
CHANGES = re.compile(r"link|unlink|rename|fsync|mkdir|openat\(.*O_CREAT")


@pytest.fixture
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_log, "_CELL", 4)


def log_of(storage: Storage) -> BatchLog:
    return BatchLog(storage, LOCATION, OUTPUT)


def write(storage: Storage, batch_id: int, attempt: str) -> Published:
    """Write the files of an attempt, as Spark does."""
    made = Published(batch_id, attempt, ["part-0.parquet", "part-1.parquet"])
    for path in log_of(storage).paths([made]):
        storage.create(path, attempt.encode())
    return made


def run(storage: Storage, batches: range, attempt: str) -> None:
    for batch_id in batches:
        log = log_of(storage)
        if not log.has(batch_id):
            log.publish(write(storage, batch_id, attempt))


def check(storage: Storage, batches: int) -> list[Published]:
    """Check that these batches are published, each by one attempt whose files are whole."""
    found = log_of(storage).read()
    assert [batch.batch_id for batch in found] == [*range(batches)]
    for batch in found:
        for path in log_of(storage).paths([batch]):
            assert storage.read(path) == batch.attempt.encode()
    return found


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path).without_sync()


def test_of_two_attempts_one_counts_and_the_other_is_deleted(storage: Storage) -> None:
    first, second = write(storage, 0, "a"), write(storage, 0, "b")
    assert log_of(storage).publish(first)
    assert not log_of(storage).publish(second)
    assert check(storage, 1)[0].attempt == "a"
    assert not any("/b/" in path for path in storage.find())
    assert log_of(storage).has(0)


def test_an_answer_that_was_lost(storage: Storage) -> None:
    made = write(storage, 0, "a")
    assert log_of(storage).publish(made)
    assert log_of(storage).publish(made)  # what a driver that repeats its request finds
    check(storage, 1)


def test_an_older_batch_is_refused(storage: Storage) -> None:
    run(storage, range(3), "a")
    with pytest.raises(SinkError, match="batch 1 is to be written, but batch 2 is published"):
        log_of(storage).has(1)


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("before", [0, 4])
@pytest.mark.parametrize("left_out", [1, 4, 70])
def test_an_attempt_that_slept_publishes_nothing_behind_a_later_batch(
    storage: Storage, before: int, left_out: int
) -> None:
    """The query was taken back meanwhile, and goes on with ids behind those that it had."""
    run(storage, range(before), "a")
    asleep, zombie = log_of(storage), write(storage, before, "zombie")
    assert not asleep.has(before)
    later = before + left_out
    run(storage, range(later, later + 1), "a")
    for _ in range(2):
        with pytest.raises(SinkError, match=f"but batch {later} is published"):
            asleep.publish(zombie)
    run(storage, range(later + 1, later + 12), "a")
    with pytest.raises(SinkError, match="is published already"):
        asleep.publish(zombie)
    ids = [batch.batch_id for batch in log_of(storage).read()]
    assert ids == [*range(before), *range(later, later + 12)]
    assert not any("zombie" in path for path in storage.find())


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("damaged", [0, 2])
def test_a_damaged_entry_fails_no_later_batch_that_is_published(
    storage: Storage, damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    run(storage, range(4), "a")
    path = f"_published/{LOCATION}/{OUTPUT}/0-{damaged:020}"
    whole = storage.read(path)
    storage.create(path, whole[:-9], overwrite=True)
    run(storage, range(4, 14), "a")
    assert path in caplog.text
    names = storage.names(f"_published/{LOCATION}/{OUTPUT}")
    assert [name[:2] for name in names] == ["0-"] * 6 + ["1-"] * 2  # others are folded
    with pytest.raises(LogFormatError, match=path):
        log_of(storage).read()
    storage.create(path, whole, overwrite=True)
    run(storage, range(14, 20), "a")
    check(storage, 20)
    assert len(storage.names(f"_published/{LOCATION}/{OUTPUT}")) == 5


@pytest.mark.usefixtures("small_cells")
def test_a_fold_that_fails_fails_no_batch(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Storage, paths: Sequence[str]) -> None:
        raise StorageError("deletes are refused", operation="delete")

    run(storage, range(4), "a")
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete_all", refuse)
        run(storage, range(4, 9), "a")
    assert "Batch 4 is published. The log of the sink cannot be shortened" in caplog.text
    check(storage, 9)
    run(storage, range(9, 13), "a")
    check(storage, 13)
    assert len(storage.names(f"_published/{LOCATION}/{OUTPUT}")) == 4


def test_outputs_whose_names_differ_by_case_have_one_log_where_the_storage_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate = LocalStorage._locate
    monkeypatch.setattr(LocalStorage, "_locate", lambda self, path: locate(self, path.lower()))
    storage = LocalStorage(tmp_path).without_sync()
    for batch_id in range(2):
        run(storage, range(batch_id, batch_id + 1), "a")
        with pytest.raises(ConfigError, match="5f1c/orders is taken for that of 5f1c/Orders"):
            BatchLog(storage, LOCATION, "Orders").has(batch_id)
    check(storage, 2)


@pytest.mark.usefixtures("small_cells")
def test_entries_are_folded(storage: Storage) -> None:
    run(storage, range(50), "a")
    names = storage.names(f"_published/{LOCATION}/{OUTPUT}")
    assert [name[:2] for name in names] == ["0-"] * 2 + ["2-"] * 3
    check(storage, 50)


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("batches", [10, 50])
def test_a_zombie_that_wakes_after_the_fold(storage: Storage, batches: int) -> None:
    zombie = write(storage, 2, "zombie")
    run(storage, range(batches), "a")
    assert not log_of(storage).publish(zombie)
    check(storage, batches)
    assert not any("zombie" in path for path in storage.find())


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("batches", [10, 50])
def test_a_driver_that_sleeps_right_after_it_published(
    storage: Storage, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(storage, range(2), "a")
    made, create = write(storage, 2, "asleep"), LocalStorage.create

    def slow(self: LocalStorage, path: str, data: bytes, **more: bool) -> None:
        create(self, path, data, **more)
        monkeypatch.undo()
        monkeypatch.setattr(batch_log, "_CELL", 4)
        run(storage, range(3, batches), "b")  # its successor folds what it published

    log = log_of(storage)
    assert not log.has(2)
    monkeypatch.setattr(LocalStorage, "create", slow)
    assert log.publish(made)
    assert check(storage, batches)[2].attempt == made.attempt


@pytest.mark.usefixtures("small_cells")
def test_a_zombie_that_is_killed_right_after_it_took_a_free_name(storage: Storage) -> None:
    run(storage, range(10), "a")
    stale = f"_published/{LOCATION}/{OUTPUT}/0-{2:020}"
    storage.create(stale, log_of(storage)._encode([write(storage, 2, "zombie")]))
    assert check(storage, 10)[2].attempt == "a"
    run(storage, range(10, 13), "a")
    assert not storage.exists(stale)


@pytest.mark.usefixtures("small_cells")
def test_files_of_killed_attempts_are_deleted_with_the_fold(storage: Storage) -> None:
    write(storage, 1, "killed")
    run(storage, range(5), "a")
    assert not any("killed" in path for path in storage.find())
    check(storage, 5)


@pytest.mark.usefixtures("small_cells")
def test_a_reader_beside_folds_sees_all_batches_before_some_batch(storage: Storage) -> None:
    seen: list[list[int]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append([batch.batch_id for batch in log_of(storage).read()])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        run(storage, range(150), "a")
    finally:
        done.set()
        reader.join()
    assert all(ids == [*range(len(ids))] for ids in seen)


def test_damage_is_named(storage: Storage) -> None:
    run(storage, range(1), "a")
    path = f"_published/{LOCATION}/{OUTPUT}/0-{0:020}"
    whole = storage.read(path)
    for data in (
        b"",
        whole[:-2],
        whole.replace(b"v1", b"v9"),
        whole.replace(b"attempt", b"atempt"),
    ):
        storage.create(path, data, overwrite=True)
        with pytest.raises(LogFormatError, match=f"Hint.*{path}"):
            log_of(storage).read()


@pytest.mark.usefixtures("small_cells")
@pytest.mark.slow
def test_drivers_at_once(tmp_path: Path) -> None:
    steps: list[Callable[[], object]] = [
        partial(_run_beside_others, str(tmp_path), name) for name in "abcd"
    ]
    assert run_all_forked(steps) == {0}
    storage = open_storage(tmp_path)
    found = check(storage, 30)
    kept = {path for path in storage.find() if path.startswith("_data")}
    assert kept >= {*log_of(storage).paths(found)}


def _run_beside_others(root: str, attempt: str) -> None:
    batch_log._CELL = 4
    storage = LocalStorage(root).without_sync()
    for batch_id in range(30):
        with suppress(SinkError):  # another one is ahead
            run(storage, range(batch_id, batch_id + 1), attempt)


@pytest.mark.storm
@needs_strace
@pytest.mark.slow
def test_kills_at_each_system_call_that_changes_something(tmp_path: Path) -> None:
    def begin(folder: Path) -> tuple[str]:
        run(LocalStorage(folder).without_sync(), range(16), "a")
        return (str(folder),)

    batch_log._CELL, usual = 4, batch_log._CELL
    try:
        points = kill_points(_prepare, begin(tmp_path / "first"), tmp_path / "log", CHANGES)
        for number, point in enumerate(points):
            folder = tmp_path / str(number)
            assert traced(_prepare, begin(folder), tmp_path / "log", point) == -9
            storage = LocalStorage(folder).without_sync()
            found = log_of(storage).read()
            assert [batch.batch_id for batch in found] == [*range(len(found))]
            assert len(found) in (16, 17)
            run(storage, range(16, 22), "c")
            check(storage, 22)
    finally:
        batch_log._CELL = usual


def _prepare(root: str) -> Callable[[], None]:
    batch_log._CELL = 4
    storage = LocalStorage(root)
    made = write(storage.without_sync(), 16, "b")  # which folds both levels
    return lambda: _publish(storage, made)


def _publish(storage: Storage, made: Published) -> None:
    log = log_of(storage)
    log.has(made.batch_id)
    log.publish(made)
