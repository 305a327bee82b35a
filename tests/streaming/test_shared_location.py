"""Programs on a cluster whose checkpoint location is not shared are refused at start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.driver import spark_environment
from tests.waiting import WAIT_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("shared_location_program.py")


def test_executors_are_probed_at_start(tmp_path: Path) -> None:
    """Memory is no executor's but one's own; the folder is shared, and left clean."""
    places = [f"memory://probed{tmp_path}", str(tmp_path / "location")]
    run = subprocess.run(
        [sys.executable, str(PROGRAM), *places],
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    said = run.stdout.splitlines()
    assert said[0].startswith("refused UnsharedPathError: executors do not share"), run.stderr[
        -3000:
    ]
    assert said[1] == "counted [('a', 2)]"
    assert not list((tmp_path / "location" / "probes").iterdir())
