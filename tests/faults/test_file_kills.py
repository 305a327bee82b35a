"""kill -9 of a program that reads new files, while they keep coming: each line once in the sink."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from threading import Event

import pytest

from tests.background import background
from tests.faults.driver import Driver
from tests.faults.ledger import judge
from tests.seeds import storm_seed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("program.py")
KILLS = 2
LINES_A_FILE = 20


class Mover:
    """Moves files of numbered lines into the inbox until it is told to end."""

    def __init__(self, inbox: Path) -> None:
        self._inbox = inbox
        self._coming = inbox.with_name("coming")
        self.sent = 0

    def move(self, end: Event) -> None:
        while not end.wait(0.1):
            numbers = range(self.sent, self.sent + LINES_A_FILE)
            self._coming.write_text("".join(f"line {number}\n" for number in numbers))
            self._coming.rename(self._inbox / f"file-{self.sent:08d}")
            self.sent += LINES_A_FILE


def test_driver_killed_while_files_come(tmp_path: Path) -> None:
    inbox, sink = tmp_path / "in", tmp_path / "sink"
    inbox.mkdir()
    stream = json.dumps(["textFileStream", {"directory": str(inbox), "name": "files"}])
    args = ["local[2]", str(tmp_path / "checkpoint"), str(sink), stream]
    seed = storm_seed()
    moments = random.Random(seed)
    with Driver(PROGRAM, args, tmp_path / "stderr.txt") as driver:
        driver.wait_line("committed")  # files count from the start on
        mover = Mover(inbox)
        with background(mover.move):
            for _ in range(KILLS):
                driver.wait_batches(2)
                time.sleep(moments.random())
                driver.restart()
            driver.wait_line("committed")
        driver.run_until(lambda: not judge(mover.sent, sink).lost, more=1)
    assert judge(mover.sent, sink).ok, f"seed {seed}: {judge(mover.sent, sink)}"
