"""An ordinary stop prints nothing, whatever runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import WAIT_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("stopping_program.py")


def test_stop_is_silent() -> None:
    run = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    parts = run.stderr.split("stopping\n")[1:]
    assert [part.partition("stopped\n")[0] for part in parts] == ["", "", ""]
