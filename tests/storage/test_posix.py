"""What differs between systems: macOS and Windows, each by a stand-in for what it has or lacks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.errors import StorageError
from penstock.storage import open_storage, posix

_ON_WINDOWS = """
import sys, sysconfig
sysconfig.get_config_vars()  # Windows has its own
sys.modules["fcntl"] = None
sys.platform = "win32"
import penstock, penstock.conf, penstock.errors
try:
    import {module}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("module", ["penstock.storage", "penstock.streaming"])
def test_windows_is_refused_by_name(module: str) -> None:
    program = _ON_WINDOWS.format(module=module)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "'win32'" in run.stdout, run.stderr
    assert "WSL 2" in run.stdout


class MacOs:
    """fcntl with F_FULLFSYNC; records what is synced by it, and fails as it is told."""

    F_FULLFSYNC = 51

    def __init__(self, number: int = 0) -> None:
        self.synced: list[int] = []
        self._number = number

    def fcntl(self, fd: int, command: int) -> int:
        assert command == self.F_FULLFSYNC
        if self._number:
            raise OSError(self._number, os.strerror(self._number))
        self.synced.append(fd)
        return 0


@pytest.fixture
def fsynced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that plain fsync was called on."""
    calls: list[int] = []
    monkeypatch.setattr(posix, "os", SimpleNamespace(fsync=calls.append))
    return calls


def test_macos_empties_the_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsynced: list[int]
) -> None:
    system = MacOs()
    monkeypatch.setattr(posix, "fcntl", system)

    open_storage(tmp_path / "root").create("file", b"x")

    assert len(system.synced) >= 2  # the file, its folder
    assert fsynced == []


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOTTY])
def test_a_file_system_without_a_full_sync_gets_fsync(
    monkeypatch: pytest.MonkeyPatch, fsynced: list[int], number: int
) -> None:
    monkeypatch.setattr(posix, "fcntl", MacOs(number))
    posix.sync(7)
    assert fsynced == [7]


def test_a_full_sync_that_failed_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsynced: list[int]
) -> None:
    storage = open_storage(tmp_path / "root")
    fsynced.clear()
    monkeypatch.setattr(posix, "fcntl", MacOs(errno.EIO))
    with pytest.raises(StorageError):
        storage.create("file", b"x")
    assert fsynced == []
