from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import processes_left

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]


def test_a_running_child_is_found_until_it_ends() -> None:
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE) as child:
        left = processes_left(patience_s=0)
        child.kill()

    assert [line for line in left if line.startswith(f"{child.pid}: ")]
    assert processes_left(patience_s=5) == []


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

    assert [line for line in left if line.startswith(f"{orphan}: ")]
    assert processes_left(patience_s=5) == []


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

    assert [line for line in left if line.startswith(f"{child}: ")]
