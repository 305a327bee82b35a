"""The folder of Spark's UNIX sockets: whoever can create a socket there runs code."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.batched.sockets import socket_folder
from penstock.storage import posix


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's own cache, with a folder for this test."""
    own = Path("~/.cache").expanduser()
    own.mkdir(parents=True, exist_ok=True)
    if any(each.stat().st_mode & 0o022 for each in (own, *own.resolve().parents)):
        pytest.skip("this user's home is within reach of others")
    folder = own / f"p{os.getpid()}"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_no_other_user_can_create_the_folder_of_the_sockets(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = socket_folder()
    assert folder is not None
    assert Path(folder).parent == cache / "penstock"
    assert os.stat(folder).st_mode & 0o777 == 0o700
    for unsafe in (tmp_path, cache / ("x" * 60), Path("relative"), Path("/proc/none")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(unsafe))  # tmp_path is under /tmp
        assert socket_folder() is None


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_running_one_stays(
    cache: Path,
) -> None:
    own = socket_folder()
    assert own is not None
    killed, starting = (cache / "penstock" / f"sockets-{name}" for name in ("killed", "new"))
    running = cache / "penstock" / "sockets-running"
    for folder in (killed, starting, running):
        folder.mkdir()
    (killed / ".1.sock").touch()
    long_ago = time.time() - 3600
    for path in (killed, running, Path(own)):
        os.utime(path, (long_ago, long_ago))
    lock = os.open(running, os.O_RDONLY)
    try:
        posix.try_lock(lock)
        again = socket_folder()
    finally:
        os.close(lock)
    assert again is not None
    left = {path.name for path in (cache / "penstock").iterdir()}
    assert left == {Path(own).name, Path(again).name, starting.name, running.name}
