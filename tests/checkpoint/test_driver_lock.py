"""One driver at a time, with real processes: killed, stopped, forked."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.checkpoint.driver_lock import DriverLock, driver_runs
from penstock.errors import CheckpointError, ConcurrentDriverError, ConfigError
from penstock.storage import posix

from .conftest import offsets_of

DRIVER = """
import subprocess, sys
from penstock.checkpoint import CheckpointLocation

location = CheckpointLocation(sys.argv[1])
location.acquire()
child = None
if sys.argv[2] == "with child":
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid if child else "acquired", flush=True)
sys.stdin.readline()
"""


@contextmanager
def driver(place: Path, how: str = "alone") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a driver in a process of its own; yield it with what it printed once it has the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(place), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_second_driver_is_told_who_the_first_is(tmp_path: Path) -> None:
    with driver(tmp_path) as (process, _):
        with pytest.raises(ConcurrentDriverError) as caught:
            CheckpointLocation(tmp_path).acquire()
        error = caught.value
        assert error.path == str(tmp_path / "driver.lock")
        assert error.ids["host"] == socket.gethostname()
        assert error.ids["pid"] == process.pid
        age = datetime.now(timezone.utc) - datetime.fromisoformat(error.ids["since"])
        assert timedelta(seconds=-1) <= age < timedelta(minutes=1)
        assert f"stop process {process.pid}" in str(error.hint)
        assert "Errno" not in "".join(traceback.format_exception(error))


def test_a_killed_driver_is_followed_at_once(tmp_path: Path) -> None:
    for _ in range(3):
        with driver(tmp_path) as (process, said):
            assert said == "acquired"
            process.kill()
            process.wait()
            with CheckpointLocation(tmp_path):
                pass


def test_a_stopped_driver_keeps_the_lock(tmp_path: Path) -> None:
    with driver(tmp_path) as (process, _):
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(ConcurrentDriverError) as caught:
            CheckpointLocation(tmp_path).acquire()
        assert caught.value.ids["pid"] == process.pid
        assert f"stop process {process.pid}" in str(caught.value.hint)
        assert "kill -9" in str(caught.value.hint)


def test_a_child_that_outlives_a_killed_driver_does_not_keep_it(tmp_path: Path) -> None:
    with driver(tmp_path, "with child") as (process, child):
        process.kill()
        process.wait()
        try:
            os.kill(int(child), 0)  # it is still there
            with CheckpointLocation(tmp_path):
                pass
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_a_forked_child_neither_keeps_the_lock_nor_drives(tmp_path: Path) -> None:
    """The fork is made in a fresh process: this one may have threads by now."""
    program = """
import os, sys
from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.errors import CheckpointError

location = CheckpointLocation(sys.argv[1])
location.acquire()
reading, writing = os.pipe()
child_pid = os.fork()
if child_pid == 0:
    os.close(1)  # so that the parent's end is seen
    try:
        location.plan(0, OffsetSeq(0, sources=('"child"',)))
        os.write(writing, b"drove")
    except CheckpointError:
        location.release()
        os.write(writing, b"refused")
    sys.stdin.readline()
    os._exit(0)
print(child_pid, os.read(reading, 100).decode(), flush=True)
location.plan(0, OffsetSeq(0, sources=("1",)))  # the child's release took nothing away
print("planned", flush=True)
os.waitpid(child_pid, 0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,  # the child ends when this is closed
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        child, what_it_met = process.stdout.readline().split()
        assert what_it_met == "refused"
        assert process.stdout.readline() == "planned\n"
        with pytest.raises(ConcurrentDriverError):
            CheckpointLocation(tmp_path).acquire()
        process.kill()
        process.wait()
        os.kill(int(child), 0)  # it is still there
        with CheckpointLocation(tmp_path) as location:
            assert location.recover().rerun == (0,)


def test_two_contexts_in_one_process_are_refused(tmp_path: Path) -> None:
    first, second = CheckpointLocation(tmp_path), CheckpointLocation(tmp_path)
    first.acquire()
    for location in (first, second):
        with pytest.raises(ConcurrentDriverError, match="stop the context of this process"):
            location.acquire()
    first.plan(0, offsets_of(0))
    first.release()
    with second:
        assert second.recover().rerun == (0,)


def test_release_is_for_the_holder_and_may_be_repeated(tmp_path: Path) -> None:
    holder, other = CheckpointLocation(tmp_path), CheckpointLocation(tmp_path)
    with holder:
        other.release()
        with pytest.raises(ConcurrentDriverError):
            other.acquire()
        holder.release()
        holder.release()
        with other:
            pass


def test_an_acquire_that_fails_later_gives_the_lock_back(tmp_path: Path) -> None:
    with CheckpointLocation(tmp_path) as location:
        location.plan(0, offsets_of(0))
        location.commit(0)
    (tmp_path / "offsets/0").unlink()
    for _ in range(2):
        with pytest.raises(CheckpointError, match="offsets/0 not found"):
            CheckpointLocation(tmp_path).acquire()


@pytest.mark.parametrize("text", ["", "[]"])
def test_a_holder_that_has_not_said_who_it_is_holds_all_the_same(tmp_path: Path, text: str) -> None:
    with CheckpointLocation(tmp_path):
        (tmp_path / "driver.lock").write_text(text)
        with pytest.raises(ConcurrentDriverError) as caught:
            CheckpointLocation(tmp_path).acquire()
        assert caught.value.ids["pid"] == "unknown"


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(ConfigError, match="cannot lock files"):
        CheckpointLocation(tmp_path).acquire()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "location").mkdir()
    (tmp_path / "location" / "driver.lock").symlink_to(victim)

    with pytest.raises(ConfigError, match=r"lock file .* cannot be opened"):
        CheckpointLocation(tmp_path / "location").acquire()

    assert victim.read_text() == "precious"


def test_whoever_asks_whether_a_driver_runs_keeps_none_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "driver.lock")
    lock = DriverLock(path)
    assert driver_runs(path) is None  # there is no file
    lock.acquire()
    assert driver_runs(path) is True
    lock.release()
    assert driver_runs(path) is False
    asking = os.open(path, os.O_RDONLY)
    posix.try_lock(asking, shared=True)
    monkeypatch.setattr("time.sleep", lambda _: os.close(asking))
    lock.acquire()
    lock.release()
