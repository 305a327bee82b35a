"""Programs on a cluster whose checkpoint location is not shared are refused at start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("shared_location_program.py")


def test_executors_are_probed_at_start(tmp_path: Path) -> None:
    """Memory is not an executor's but one's own; the folder is shared, and left clean."""
    places = [f"memory://probed{tmp_path}", str(tmp_path / "location")]
    with Driver(PROGRAM, places, tmp_path / "errors", own_pythons=True) as driver:
        said = driver.wait_line("")
        assert said.startswith("refused UnsharedPathError: executors do not share"), driver.log()
        assert driver.wait_line("") == "counted [('a', 2)]"
    assert not list((tmp_path / "location" / "probes").iterdir())
