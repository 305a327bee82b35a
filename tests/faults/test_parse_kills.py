"""kill -9 of a program with dead letters: one for each bad line, also after they were replayed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.journal import JournalStream
from penstock.journal.bad_records.dead_letters import create_dead_letters
from penstock.journal.bad_records.replay import letters_to_replay, replay
from penstock.storage import open_storage
from tests.faults.driver import Driver
from tests.faults.parse_program import is_bad

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("parse_program.py")
KILLS = 2


class Lines:
    """Appends numbered lines to a log until it is told to end."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._append)
        self.sent = 0

    def start(self) -> None:
        self._log.touch()
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def _append(self) -> None:
        with self._log.open("a") as log:
            while not self._end.wait(0.02):
                log.writelines(f"line {n}\n" for n in range(self.sent, self.sent + 20))
                log.flush()
                self.sent += 20


def values(sink: Path) -> list[int]:
    written = (path for path in sink.iterdir() if path.suffix != ".new")
    return sorted(int(line) for path in written for line in path.read_text().split())


def letters(dead: JournalStream) -> list[tuple[str, int]]:
    tables = list(letters_to_replay(dead))
    return [(r["raw"].decode(), r["attempts"]) for table in tables for r in table.to_pylist()]


def test_one_dead_letter_for_each_bad_line(tmp_path: Path) -> None:
    checkpoint, sink = tmp_path / "checkpoint", tmp_path / "sink"
    sink.mkdir()
    lines = Lines(tmp_path / "log")
    lines.start()
    args = [str(checkpoint), str(tmp_path / "log"), str(sink)]
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    driver = Driver(PROGRAM, args, tmp_path / "stderr.txt")
    try:
        for _ in range(KILLS):
            driver.wait_batches(3)
            time.sleep(moments.random() / 2)
            driver.end()
            driver = Driver(PROGRAM, args, tmp_path / "stderr.txt")
        lines.end()
        bad = [f"line {n}" for n in range(lines.sent) if is_bad(n)]
        journal = open_storage(checkpoint / "journal")
        stream = JournalStream.open(journal, "lines")
        dead = create_dead_letters(stream)
        driver.run_until(lambda: len(letters(dead)) >= len(bad), more=2)
        assert Counter(letters(dead)) == Counter((line, 1) for line in bad), f"seed {seed}"

        assert replay(dead, stream) == len(bad)  # beside the program, which refuses them again
        driver.run_until(lambda: len(letters(dead)) >= len(bad), more=2)
        assert Counter(letters(dead)) == Counter((line, 2) for line in bad), f"seed {seed}"
        assert values(sink) == [n for n in range(lines.sent) if not is_bad(n)], f"seed {seed}"
    finally:
        driver.end()
        lines.end()
