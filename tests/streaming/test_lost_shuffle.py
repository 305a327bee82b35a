"""mapWithState when Spark loses the input of a task while the task reads it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.driver import Driver
from tests.streaming.lost_shuffle_program import RECORDS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("lost_shuffle_program.py")


def test_records_that_a_lost_shuffle_file_cut_off_are_counted(tmp_path: Path) -> None:
    """PySpark's workers take an input that the JVM could not complete for one that has ended."""
    with Driver(PROGRAM, [str(tmp_path)], tmp_path / "stderr.txt") as driver:
        counts = sorted(Counter(number % 3 for number in range(RECORDS)).items())
        assert driver.wait_line("counts") == f"counts {counts} True"
