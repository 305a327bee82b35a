"""kill -9 of a program with dead letters: one for each bad line, also after they were replayed."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.journal import JournalStream
from penstock.journal.bad_records.dead_letters import DeadLetterFolder
from penstock.journal.bad_records.replay import replay
from penstock.storage import open_storage
from tests.faults.driver import Driver
from tests.faults.ledger import LogWriter
from tests.faults.parse_program import is_bad
from tests.seeds import storm_seed

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("parse_program.py")
KILLS = 2


def values(sink: Path) -> list[int]:
    written = (path for path in sink.iterdir() if path.suffix != ".new")
    return sorted(int(line) for path in written for line in path.read_text().split())


def letters(dead: DeadLetterFolder) -> list[str]:
    return [raw.decode() for file in dead.waiting() for raw in dead.read(file)["raw"].to_pylist()]


def test_one_dead_letter_for_each_bad_line(tmp_path: Path) -> None:
    checkpoint, sink, folder = tmp_path / "checkpoint", tmp_path / "sink", tmp_path / "logs"
    sink.mkdir()
    folder.mkdir()
    writer = LogWriter(folder)
    args = [str(checkpoint), str(folder / "app.log*"), str(sink)]
    seed = storm_seed()
    moments = random.Random(seed)
    with Driver(PROGRAM, args, tmp_path / "stderr.txt") as driver:
        with writer.running(pause_s=0.02):
            for _ in range(KILLS):
                driver.wait_batches(3)
                time.sleep(moments.random() / 2)
                driver.restart()
        bad = [f"line {n}" for n in range(writer.sent) if is_bad(n)]
        journal = open_storage(checkpoint / "journal")
        stream = JournalStream.open(journal, "lines")
        dead = DeadLetterFolder.create(journal, "lines")
        driver.run_until(lambda: len(letters(dead)) >= len(bad), more=2)
        assert Counter(letters(dead)) == Counter(bad), f"seed {seed}"

        assert replay(dead, stream) == len(bad)  # beside the program, which refuses them again
        driver.run_until(lambda: len(letters(dead)) >= len(bad), more=2)
        assert Counter(letters(dead)) == Counter(bad), f"seed {seed}"
        assert values(sink) == [n for n in range(writer.sent) if not is_bad(n)], f"seed {seed}"
