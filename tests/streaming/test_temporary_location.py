"""The folder of a program without a checkpoint location: a killed one's is removed by the next."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.streaming.context.run_location import make_temporary_location

DRIVER = """
import os, signal
from penstock.checkpoint import CheckpointLocation
from penstock.streaming.context.run_location import make_temporary_location
path = make_temporary_location()
CheckpointLocation(path).acquire()
print(path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def age(path: str) -> None:
    """Let a location's driver have begun two minutes ago."""
    then = time.time() - 120
    os.utime(Path(path) / "driver.lock", (then, then))


def test_what_a_killed_program_left_is_removed(folder: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(folder)}
    killed = subprocess.run(
        [sys.executable, "-c", DRIVER], env=environment, capture_output=True, text=True, check=False
    )
    left = killed.stdout.strip()
    assert Path(left, "driver.lock").exists(), killed.stderr
    kept = make_temporary_location()  # its driver may just be starting
    age(left)
    made = make_temporary_location()
    assert {str(path) for path in folder.iterdir()} == {kept, made}


def test_what_a_program_uses_stays(folder: Path) -> None:
    used = make_temporary_location()
    with CheckpointLocation(used):
        age(used)
        made = make_temporary_location()
        assert {str(path) for path in folder.iterdir()} == {used, made}


def test_what_others_made_stays(folder: Path) -> None:
    for name in ("penstock-demo-1", "penstock-run-file", "penstock-run-unlocked"):
        (folder / name).mkdir()
    (folder / "penstock-demo-1" / "driver.lock").touch()
    age(str(folder / "penstock-demo-1"))
    (folder / "penstock-run-link").symlink_to(folder / "penstock-demo-1")
    before = set(folder.iterdir())
    made = make_temporary_location()
    assert set(folder.iterdir()) == before | {Path(made)}
