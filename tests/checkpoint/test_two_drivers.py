"""Two drivers of one location without locks, one of which slept through a purge of the logs."""

from __future__ import annotations

import logging
import uuid

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.errors import ConcurrentDriverError, LogGapError, StorageError
from penstock.storage import Entry, Storage, open_storage
from tests.storage.faulty_storage import FaultyStorage

from .conftest import offsets_of


@pytest.fixture
def shared() -> Storage:
    """An object store: it has no lock that would keep a second driver out."""
    return open_storage(f"memory://{uuid.uuid4().hex}")


def drive(location: CheckpointLocation, first: int, end: int) -> None:
    for batch_id in range(first, end):
        location.plan(batch_id, offsets_of(batch_id))
        location.commit(batch_id)
        location.release_batches()
        location.retire()


def sleeper(storage: Storage) -> CheckpointLocation:
    """Return a driver that has planned batch 3 and not committed it."""
    location = CheckpointLocation(storage)
    location.acquire()
    drive(location, 0, 3)
    location.plan(3, offsets_of(3))
    location.run(3)
    return location


def successor(storage: Storage) -> CheckpointLocation:
    """Return a driver that has run so many batches that the sleeper's are purged."""
    location = CheckpointLocation(storage)
    assert location.acquire().rerun == (3,)
    location.commit(3)
    drive(location, 4, 134)
    assert location.offsets.batch_ids()[0] > 4
    return location


def test_a_driver_that_slept_through_a_purge_is_fenced_at_its_next_plan(shared: Storage) -> None:
    old, new = sleeper(shared), successor(shared)
    kept = new.offsets.batch_ids(), new.commits.batch_ids()
    old.commit(3)  # nothing tells it yet
    with pytest.raises(ConcurrentDriverError, match="it planned batch 133"):
        old.plan(4, offsets_of(4))
    assert (new.offsets.batch_ids(), new.commits.batch_ids()) == kept  # all of it is taken back
    with pytest.raises(ConcurrentDriverError):
        old.release_batches()
    drive(new, 134, 136)
    assert CheckpointLocation(shared).acquire().next_batch_id == 136


def test_nothing_is_released_before_a_listing_that_follows_the_commit(shared: Storage) -> None:
    old = sleeper(shared)
    assert old.release_batches() == 2
    successor(shared)
    old.commit(3)
    assert old.release_batches() is None
    with pytest.raises(ConcurrentDriverError):
        old.confirm()
    with pytest.raises(ConcurrentDriverError):
        old.release_batches()


def test_a_fenced_driver_confirms_nothing_however_young_its_listing(shared: Storage) -> None:
    old = sleeper(shared)
    successor(shared)
    with pytest.raises(ConcurrentDriverError):
        old.plan(4, offsets_of(4))
    with pytest.raises(ConcurrentDriverError):
        old.confirm(max_age_s=3600)


def test_what_a_fenced_driver_left_when_it_was_killed_is_told_and_removed(
    shared: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = FaultyStorage(shared)
    old, new = sleeper(faulty), successor(shared)
    old.commit(3)
    faulty.fail("list", path="offsets")  # it dies between the create and the listing
    with pytest.raises(StorageError):
        old.plan(4, offsets_of(4))
    assert new.offsets.batch_ids()[0] == 4
    drive(new, 134, 135)
    third = CheckpointLocation(shared)
    with caplog.at_level(logging.WARNING, "penstock"):
        assert third.acquire().next_batch_id == 135
    assert "removing offsets/4 (run " in caplog.text
    assert third.offsets.batch_ids()[0] > 4
    assert third.commits.batch_ids()[0] > 4
    drive(third, 135, 137)


def test_a_true_gap_is_still_refused(shared: Storage) -> None:
    new = sleeper(shared) and successor(shared)
    shared.delete(f"offsets/{new.offsets.batch_ids()[-2]}")
    with pytest.raises(LogGapError):
        CheckpointLocation(shared).acquire()


def test_a_lost_answer_blames_no_other_driver(shared: Storage) -> None:
    faulty = FaultyStorage(shared)
    location = CheckpointLocation(faulty)
    location.acquire()
    for kind, step in (("offsets", location.plan), ("commits", location.commit)):
        faulty.fail("create", path=f"{kind}/*", after=True)
        arguments = (0, offsets_of(0)) if kind == "offsets" else (0,)
        with pytest.raises(StorageError):
            step(*arguments)  # type: ignore[operator]
        step(*arguments)  # type: ignore[operator]
    drive(location, 1, 3)


def test_a_fenced_driver_leaves_the_entry_that_its_successor_found(shared: Storage) -> None:
    """It sleeps between its create of offsets/3 and its listing; the entry is the other's then."""
    new = CheckpointLocation(shared)

    class Asleep(FaultyStorage):
        def list(self, folder: str = "") -> list[Entry]:
            if (
                folder == "offsets"
                and shared.exists("offsets/3")
                and not shared.exists("offsets/4")
            ):
                assert new.acquire().rerun == (3,)
                new.commit(3)
                new.plan(4, offsets_of(4))
            return super().list(folder)

    old = CheckpointLocation(Asleep(shared))
    old.acquire()
    drive(old, 0, 3)
    with pytest.raises(ConcurrentDriverError, match="it planned batch 4"):
        old.plan(3, offsets_of(3))
    new.commit(4)
    new.release()
    with CheckpointLocation(shared) as third:
        assert third.recover().next_batch_id == 5
    assert third.offsets.batch_ids() == (0, 1, 2, 3, 4)
    assert third.commits.batch_ids() == (0, 1, 2, 3, 4)
