"""Minutes under load: what a receiver and its driver hold does not grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.spark
def test_memory_descriptors_and_files_stay_flat_under_load() -> None:
    command = [sys.executable, "bench/memory.py", "--seconds", "180"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
