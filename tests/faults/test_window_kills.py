"""kill -9 of a program with windows, downtimes longer than those: each line in all of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.driver import Driver
from tests.faults.ledger import LogWriter
from tests.seeds import storm_seed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("window_program.py")
KILLS = 2


def windows(sink: Path, name: str) -> list[list[str]]:
    """Return the lines of each window, in the order of their times."""
    files = sorted(sink.glob(f"{name}-*"), key=lambda file: int(file.name.rpartition("-")[2]))
    return [file.read_text().splitlines() for file in files]


def is_drained(sink: Path, sent: int) -> bool:
    """Whether the last of these lines came, and has left all windows."""
    sliding, counted = windows(sink, "sliding"), windows(sink, "counted")
    came = {line for window in sliding for line in window}
    return len(came) == sent and counted[-1] == ["0"]


@pytest.mark.storm
def test_driver_killed_while_windows_hold_lines(tmp_path: Path) -> None:
    kill_in_windows(tmp_path, str(tmp_path / "checkpoint"))


def kill_in_windows(tmp_path: Path, checkpoint: str) -> None:
    folder, sink = tmp_path / "log", tmp_path / "sink"
    folder.mkdir()
    sink.mkdir()
    args = [checkpoint, str(folder), str(sink)]
    seed = storm_seed()
    moments = random.Random(seed)
    writer = LogWriter(folder)
    with Driver(PROGRAM, args, tmp_path / "stderr.txt", own_pythons=True) as driver:
        with writer.running(pause_s=0.05):
            for _ in range(KILLS):
                driver.wait_batches(3)
                time.sleep(moments.random())
                driver.restart()  # which takes longer than windows are wide
            driver.wait_line("committed")
        driver.run_until(lambda: is_drained(sink, writer.sent))
    for name, times in [("tumbling", 1), ("sliding", 3)]:
        found = Counter(line for window in windows(sink, name) for line in window)
        assert found == dict.fromkeys(writer.lines(), times), f"{name}, seed {seed}"
    counts = [int(count) for window in windows(sink, "counted") for count in window]
    assert sum(counts) == 5 * writer.sent, f"seed {seed}"
