"""An ordinary stop tells of no error, whatever runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("stopping_program.py")


def test_a_stop_tells_of_no_error(tmp_path: Path) -> None:
    with Driver(PROGRAM, [], tmp_path / "errors") as driver:
        assert driver.process.wait() == 0, driver.log()
    stops = [part.partition("stopped\n")[0] for part in driver.log().split("stopping\n")[1:]]
    assert len(stops) == 3, driver.log()
    assert not any(" ERROR " in each or "Traceback" in each for each in stops), stops
