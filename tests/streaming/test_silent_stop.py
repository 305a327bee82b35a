"""An ordinary stop prints nothing, whatever runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("stopping_program.py")


def test_stop_is_silent(tmp_path: Path) -> None:
    with Driver(PROGRAM, [], tmp_path / "errors") as driver:
        assert driver.process.wait() == 0, driver.log()
    parts = driver.log().split("stopping\n")[1:]
    assert [part.partition("stopped\n")[0] for part in parts] == ["", "", ""]
