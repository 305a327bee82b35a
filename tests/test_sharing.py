"""A run whose worker dies ends, and runs all other tests once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from tests.sharing import Scheduler

def pytest_xdist_make_scheduler(config, log):
    return Scheduler(config, log)
"""
NOTICED_LATE = """
import time
from xdist.workermanage import WorkerController

WorkerController.shutting_down = property(lambda node: node._shutdown_sent)
mark = Scheduler.mark_test_complete

def mark_late(*args):
    time.sleep(0.1)
    mark(*args)

Scheduler.mark_test_complete = mark_late
"""
TESTS = """
import os, pytest

@pytest.mark.parametrize("number", range(12))
def test_each(number):
    with open("ran", "a") as file:
        print(number, file=file)
    if number in {0, 5, 11}:
        os._exit(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", NOTICED_LATE], ids=["noticed", "noticed late"])
def test_a_worker_that_dies_fails_one_test(tmp_path: Path, more: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST + more)
    (tmp_path / "test_dies.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    workers = ["-n2", "--dist=loadgroup", "--no-loadscope-reorder"]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", *workers, "."],
        cwd=tmp_path,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # each worker would import them
        timeout=120,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "3 failed, 9 passed" in ended.stdout
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(12))
