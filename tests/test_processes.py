from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked import Forked
from tests.processes import processes_left
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


def is_in(left: list[str], pid: int) -> bool:
    return any(line.startswith(f"{pid}: ") for line in left)


def test_a_running_child_is_found_until_it_ends() -> None:
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE) as child:
        left = processes_left(patience_s=0)
        child.kill()

    assert is_in(left, child.pid)
    assert eventually(lambda: not is_in(processes_left(patience_s=0), child.pid))


def test_a_process_that_lost_its_parent_is_found() -> None:
    start_and_leave = f"import subprocess; print(subprocess.Popen({SLEEP!r}, stdout=-3).pid)"
    done = subprocess.run(
        [sys.executable, "-c", start_and_leave], stdout=subprocess.PIPE, check=True
    )
    orphan = int(done.stdout)
    try:
        left = processes_left(patience_s=0)
    finally:
        os.kill(orphan, signal.SIGKILL)

    assert is_in(left, orphan)
    assert eventually(lambda: not is_in(processes_left(patience_s=0), orphan))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_found() -> None:
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        left = processes_left(patience_s=0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert is_in(left, child)


def test_a_child_of_the_fork_server_is_found() -> None:
    child = Forked(time.sleep, 60)
    left = processes_left(patience_s=0)
    child.kill()

    assert is_in(left, child.pid)
    assert child.wait() == -signal.SIGKILL
    assert not is_in(processes_left(patience_s=0), child.pid)
