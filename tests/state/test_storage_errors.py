"""Errors of the storage and of the local disk: nothing is lost, and the next attempt goes on."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import LocalCopyError, PenstockError
from penstock.state import Partition, PartitionVersion, Version, VersionLog, update_partition
from penstock.state import layers as layer_policy
from penstock.storage.local import LocalStorage
from tests.storage.faulty_syscalls import FailingSyscalls

from .helpers import OPERATOR, Runner, add_up


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_an_error_at_each_system_call_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(layer_policy, "FAN_IN", 3)
    runner = Runner(tmp_path)
    tip = None
    for time_ms in range(1, 6):
        tip = runner.batch(tip, [("a", 1)], time_ms, oldest_tip=tip)
    syscalls = FailingSyscalls()
    storage = LocalStorage(tmp_path / "state", syscalls=syscalls)
    partition = Partition(storage, OPERATOR, 0, "00000001", str(tmp_path / "executor"))

    def batch() -> str | None:
        with partition.open(tip) as database:
            update = update_partition([("a", 1)], database, add_up, time_ms=6, timeout_ms=None)
            return partition.commit(database, update, 6, tip)

    failures = 0
    while True:
        syscalls.fail(number, after=failures)
        try:
            after = batch()
        except PenstockError:
            assert syscalls.failed is not None
            failures += 1
            shutil.rmtree(tmp_path / "executor")  # as another executor would meet it
            continue
        if syscalls.failed is None:
            break
        failures += 1  # an error that storage could pass over
    assert failures > 20
    assert runner.state(after) == {"a": 6}


def test_an_error_when_a_version_is_published(tmp_path: Path) -> None:
    syscalls = FailingSyscalls()
    storage = LocalStorage(tmp_path, syscalls=syscalls)
    version = Version(7, (PartitionVersion("tip", 3), PartitionVersion()))
    log = VersionLog(storage, OPERATOR, check_files=False)
    for after in range(100):
        syscalls.fail(errno.EIO, after=after)
        try:
            log.publish(version)
        except PenstockError:
            continue
        if syscalls.failed is None:
            break
    assert VersionLog(LocalStorage(tmp_path), OPERATOR).times == (7,)


def test_a_full_local_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(tmp_path)
    tip = runner.batch(None, [("a", 1)], 1)

    def connect(path: str, **options: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        with pytest.raises(LocalCopyError, match=r"disk is full.*spark\.local\.dir has free space"):
            runner.batch(tip, [("a", 1)], 2)
    assert runner.state(runner.batch(tip, [("a", 1)], 2)) == {"a": 2}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_local_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "executor").mkdir(mode=0o500)
    with pytest.raises(LocalCopyError, match="cannot be created"):
        Runner(tmp_path).batch(None, [("a", 1)], 1)
