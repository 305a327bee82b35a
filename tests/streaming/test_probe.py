"""Whether executors see the driver's files, and the driver theirs."""

from __future__ import annotations

import pickle
import socket
from pathlib import Path

import pytest

from penstock.driver.shared_location import Probe, check_probed
from penstock.errors import UnsharedPathError
from penstock.storage import Storage, open_storage
from tests.storage.faulty_storage import FaultyStorage


@pytest.fixture
def driver(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "driver")


def test_a_shared_path_is_found_to_be_shared_and_left_as_it_was(driver: Storage) -> None:
    probe = Probe.begin(driver)
    found = [*pickle.loads(pickle.dumps(probe))(0, ()), *probe(1, ())]
    found += probe(1, ())  # a task that Spark ran twice
    check_probed(driver, found)
    probe.end(2)
    assert list(driver.find()) == []


def test_an_executor_that_does_not_see_the_driver_is_named(driver: Storage, tmp_path: Path) -> None:
    probe = Probe.begin(driver)
    elsewhere = Probe(open_storage(tmp_path / "executor"), probe.token)
    with pytest.raises(UnsharedPathError, match="does not see the driver's files") as caught:
        check_probed(driver, [*probe(0, ()), *elsewhere(1, ())])
    assert f"on {socket.gethostname()}" in str(caught.value)
    assert list(elsewhere.storage.find()) == []  # nothing is written to a path of its own


def test_an_executor_whose_files_the_driver_does_not_see_is_named(
    driver: Storage, tmp_path: Path
) -> None:
    """A mount that is read from a copy, or that writes elsewhere."""
    probe = Probe.begin(driver)
    elsewhere = Probe(open_storage(tmp_path / "executor"), probe.token)
    elsewhere.storage.create(probe.file("driver"), b"")
    with pytest.raises(UnsharedPathError, match="the driver does not see its files"):
        check_probed(driver, list(elsewhere(0, ())))


def test_an_executor_that_cannot_write_says_why(driver: Storage) -> None:
    probe = Probe.begin(driver)
    broken = FaultyStorage(driver)
    broken.fail("create")
    with pytest.raises(UnsharedPathError, match="a fault was ordered"):
        check_probed(driver, list(Probe(broken, probe.token)(0, ())))
