"""Versions: published once, in order, and retired from the oldest on."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConcurrentDriverError, MissingStateError, UnsharedPathError
from penstock.state import PartitionVersion, Version, VersionLog, read_version, version_times
from penstock.storage import Storage, open_storage
from tests.storage.faulty_storage import FaultyStorage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


def version(time_ms: int, tip: str = "a") -> Version:
    return Version(time_ms, (PartitionVersion(tip, 5), PartitionVersion()))


def test_what_is_published_is_read_by_others(storage: Storage) -> None:
    log = VersionLog(storage, "op", check_files=False)
    for time_ms in (1000, 2000):
        log.publish(version(time_ms))
    assert VersionLog(storage, "op").times == log.times == (1000, 2000)
    assert read_version(storage, "op", 2000) == version(2000)
    with pytest.raises(MissingStateError, match=r"00000000000000003000\.version"):
        read_version(storage, "op", 3000)


def test_publishing_again_is_nothing_and_otherwise_a_second_driver(storage: Storage) -> None:
    log = VersionLog(storage, "op", check_files=False)
    log.publish(version(1000))
    log.publish(version(1000))
    assert log.times == (1000,)
    with pytest.raises(ConcurrentDriverError, match="another driver published"):
        VersionLog(storage, "op", check_files=False).publish(version(1000, tip="b"))


@pytest.mark.parametrize(
    ("needed_ms", "kept"),
    [(999, 4), (1000, 4), (2500, 3), (3000, 2), (4000, 1), (9000, 1)],
)
def test_retiring_keeps_what_is_needed_and_the_one_before_it(
    storage: Storage, needed_ms: int, kept: int
) -> None:
    log = VersionLog(storage, "op", check_files=False)
    for time_ms in (1000, 2000, 3000, 4000):
        log.publish(version(time_ms))
    log.retire(needed_ms)
    assert log.times == (1000, 2000, 3000, 4000)[-kept:]
    assert version_times(storage, "op") == list(log.times)


def test_a_version_whose_files_the_driver_does_not_see_is_not_published(storage: Storage) -> None:
    """What the executors of another host wrote to a path of their own."""
    log = VersionLog(storage, "op")
    storage.create("op/00000/a", b"")
    log.publish(version(1000))
    with pytest.raises(UnsharedPathError, match=r"does not see 1 of 1 files .* such as op/00000/b"):
        log.publish(version(2000, tip="b"))
    assert version_times(storage, "op") == [1000]
    storage.create("op/00000/b", b"")
    log.publish(version(2000, tip="b"))
    assert log.times == (1000, 2000)


def test_files_are_looked_for_by_one_listing_and_only_the_new_ones(tmp_path: Path) -> None:
    storage = FaultyStorage(open_storage(f"memory://versions{tmp_path}"))
    log = VersionLog(storage, "op")
    count = 50
    for time_ms, tips in ((1000, ["a"] * count), (2000, ["a"] * (count - 1) + ["b"])):
        for number, tip in enumerate(tips):
            storage.create(f"op/{number:05d}/{tip}", b"", overwrite=True)
        storage.operations.clear()
        log.publish(Version(time_ms, tuple(PartitionVersion(tip) for tip in tips)))
        assert [o.kind for o in storage.operations] == ["list", "create"]
    storage.operations.clear()
    log.publish(Version(3000, tuple(PartitionVersion(tip) for tip in tips)))
    assert [o.kind for o in storage.operations] == ["create"]


@pytest.mark.parametrize(
    ("parts", "may"),
    [
        ([PartitionVersion()], False),
        ([PartitionVersion("a", 10), PartitionVersion()], False),
        ([PartitionVersion("a", 10), PartitionVersion("b", 9)], True),
        ([PartitionVersion("a", 10), PartitionVersion("b", None)], True),
    ],
)
def test_whether_keys_may_time_out(parts: list[PartitionVersion], may: bool) -> None:
    assert Version(1, tuple(parts)).may_be_untouched_since(10) is may
