"""An ordinary stop tells of no error, whatever runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.waiting import WAIT_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_stop_tells_of_no_error() -> None:
    # With a JVM of its own, which writes to the same standard error.
    command = [sys.executable, "-m", "tests.streaming.stopping_program"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    stops = [part.partition("stopped\n")[0] for part in ended.stderr.split("stopping\n")[1:]]
    assert len(stops) == 3, ended.stderr
    assert not any(" ERROR " in each or "Traceback" in each for each in stops), stops
