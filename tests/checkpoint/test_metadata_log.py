"""What holds for both logs: added once, read exactly, gaps and look-alikes told, purged exactly."""

from __future__ import annotations

import pytest

from penstock.checkpoint import CommitLog, CommitMetadata, OffsetLog
from penstock.errors import (
    ConcurrentDriverError,
    ConfigError,
    LogFormatError,
    LogGapError,
    StorageError,
)
from penstock.storage import Storage
from tests.storage.faulty_storage import FaultyStorage

from .conftest import offsets_of


def add_all(log: CommitLog, *batch_ids: int) -> None:
    for batch_id in batch_ids:
        log.add(batch_id, CommitMetadata(batch_id))


def put(storage: Storage, path: str, content: bytes) -> None:
    """Place a file as by hand, without its checksum."""
    storage.delete(path)
    folder, _, name = path.rpartition("/")
    storage.delete(f"{folder}/.{name}.crc")
    storage.create(path, content)


def test_an_entry_is_read_back(storage: Storage) -> None:
    log = CommitLog(storage)
    add_all(log, 0, 1)
    assert log.get(1) == CommitMetadata(1)
    assert log.get(2) is None
    assert log.latest() == (1, CommitMetadata(1))
    assert log.require(0) == CommitMetadata(0)


def test_an_empty_log(storage: Storage) -> None:
    log = CommitLog(storage)
    assert log.batch_ids() == ()
    assert log.latest() is None
    log.validate()
    log.purge(5)


def test_ids_are_ordered_as_numbers(storage: Storage) -> None:
    log = CommitLog(storage)
    add_all(log, 9, 10, 100)
    assert log.batch_ids() == (9, 10, 100)
    assert log.latest() == (100, CommitMetadata(100))


def test_adding_the_same_entry_again_changes_nothing(storage: Storage) -> None:
    log = OffsetLog(storage)
    log.add(0, offsets_of(0))
    before = {entry: storage.read(f"offsets/{entry.name}") for entry in storage.list("offsets")}
    OffsetLog(storage).add(0, offsets_of(0))
    assert before == {
        entry: storage.read(f"offsets/{entry.name}") for entry in storage.list("offsets")
    }


def test_another_entry_for_an_id_is_another_driver(storage: Storage) -> None:
    log = OffsetLog(storage)
    log.add(7, offsets_of(7))
    with pytest.raises(ConcurrentDriverError) as caught:
        OffsetLog(storage).add(7, offsets_of(8))
    assert caught.value.path == storage.uri("offsets/7")
    assert caught.value.ids == {"batch_id": 7}
    assert "another driver" in str(caught.value.hint)
    assert log.get(7) == offsets_of(7)


@pytest.mark.parametrize("after", [False, True])
def test_an_add_that_failed_can_be_repeated(local_storage: Storage, after: bool) -> None:
    faulty = FaultyStorage(local_storage)
    log = OffsetLog(faulty)
    faulty.fail("create", after=after)
    with pytest.raises(StorageError):
        log.add(0, offsets_of(0))
    log.add(0, offsets_of(0))
    assert OffsetLog(local_storage).get(0) == offsets_of(0)


def test_an_entry_found_there_is_made_durable_before_it_counts(local_storage: Storage) -> None:
    faulty = FaultyStorage(local_storage)
    faulty.fail("create", after=True)  # a name that was linked, and not yet fsynced
    log = OffsetLog(faulty)
    with pytest.raises(StorageError):
        log.add(0, offsets_of(0))
    log.add(0, offsets_of(0))
    assert faulty.operations[-1].kind == "list"


@pytest.mark.parametrize("batch_id", [-1, 2**63])
def test_ids_that_spark_cannot_have_are_refused(storage: Storage, batch_id: int) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        CommitLog(storage).add(batch_id, CommitMetadata())


def test_look_alike_files_are_ignored_and_told(storage: Storage) -> None:
    log = CommitLog(storage)
    add_all(log, 5)
    look_alikes = ["5.tmp", ".6.crc", "5.txt", "05", "-1", "+5", "5 ", "9223372036854775808", "٣"]
    for name in look_alikes:
        storage.create(f"commits/{name}", b"v1\n{}")
    storage.create("commits/6/part", b"")
    assert log.batch_ids() == (5,)
    assert sorted(log.orphans()) == sorted([*look_alikes, "6"])


def test_a_gap_is_named_with_its_fix(storage: Storage) -> None:
    log = CommitLog(storage)
    add_all(log, 1, 2, 4, 9)
    with pytest.raises(LogGapError) as caught:
        log.validate()
    message = str(caught.value)
    assert "commits/3, commits/5 to commits/8" in message
    assert "restore" in str(caught.value.hint)
    with pytest.raises(LogGapError, match="commits/3"):
        log.require(3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Incomplete log file"),
        (b"v1\n{}", "Incomplete log file"),
        (b'v1\n{"nextBatchWatermarkMs":1}\n', "another form"),
        (b'v1\n{"nextBatchWatermarkMs":1,"stateUniqueIds":{}}', "does not hold just"),
        (b'v1\n{"nextBatchWatermarkMs":1,"nextBatchWatermarkMs":1}', "given twice"),
        (b'v1\n{"nextBatchWatermarkMs":-1}', "not a time"),
        (b'v1\n{"nextBatchWatermarkMs":NaN}', "not JSON"),
        (b'v1\n{"nextBatchWatermarkMs":9223372036854775808}', "not a time"),
        (b"v1\n1", "not a JSON object"),
        (b'v1\n{"nextBatchWatermarkMs":1\xff}', "not UTF-8"),
        (b'\xef\xbb\xbfv1\n{"nextBatchWatermarkMs":1}', "failed to read correct log version"),
        (b'v0\n{"nextBatchWatermarkMs":1}', "failed to read correct log version from v0."),
        (b'v1\r\n{"nextBatchWatermarkMs":1}', "another form"),
    ],
)
def test_a_damaged_entry_is_refused_and_named(
    storage: Storage, content: bytes, message: str
) -> None:
    log = CommitLog(storage)
    add_all(log, 0)
    put(storage, "commits/1", content)
    with pytest.raises(LogFormatError, match=message) as caught:
        log.get(1)
    assert caught.value.path == storage.uri("commits/1")
    assert caught.value.ids == {"batch_id": 1}
    assert caught.value.hint
    with pytest.raises(LogFormatError):  # and not batch 0 in its place
        log.latest()
    with pytest.raises(LogFormatError):  # nor is it written over
        log.add(1, CommitMetadata(1))
    assert storage.read("commits/1") == content


def test_a_newer_version_is_refused_in_sparks_words(storage: Storage) -> None:
    put(storage, "commits/0", b'v2\n{"nextBatchWatermarkMs":1}')
    with pytest.raises(LogFormatError) as caught:
        CommitLog(storage).get(0)
    assert caught.value.message == (
        "UnsupportedLogVersion: maximum supported log version is v1, but encountered v2. The log"
        " file was produced by a newer version of Spark and cannot be read by this version. Please"
        " upgrade."
    )
    assert "release that wrote it" in str(caught.value.hint)


def test_purge_deletes_what_is_below_and_nothing_else(storage: Storage) -> None:
    log = CommitLog(storage)
    add_all(log, *range(10))
    for keep_from, left in [(0, 0), (3, 3), (2, 3), (3, 3), (8, 8), (8, 8), (9, 9)]:
        log.purge(keep_from)
        assert log.batch_ids() == tuple(range(left, 10))
    assert log.orphans() == ()
    log.purge(20)
    assert list(storage.list("commits")) == []


def test_purge_goes_on_where_it_failed(local_storage: Storage) -> None:
    faulty = FaultyStorage(local_storage)
    log = CommitLog(faulty)
    add_all(log, *range(6))
    for after, left in ((False, range(6)), (True, range(4, 6))):
        faulty.fail("delete", after=after)
        with pytest.raises(StorageError):
            log.purge(4)
        assert log.batch_ids() == tuple(left)
    log.purge(4)
    assert log.batch_ids() == (4, 5)


def test_purge_lists_only_once(local_storage: Storage) -> None:
    faulty = FaultyStorage(local_storage)
    log = CommitLog(faulty)
    add_all(log, *range(10))
    faulty.operations.clear()
    for keep_from in range(1, 10):
        log.purge(keep_from)
    kinds = [operation.kind for operation in faulty.operations]
    assert kinds.count("list") == 1
    assert kinds.count("delete") == 9
