"""The promise: state, windows and joins come out through kills as if nothing had been killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.background import background
from tests.faults.driver import Driver
from tests.faults.state_program import WINDOW_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("state_program.py")

KILLS = [
    "after-write-3",  # the files are whole, and nothing says so
    "after-mark-1",  # the very next run: state is durable, its batch is not committed
    "after-commit-2",
]
"""What ends each driver, one after the other, on one checkpoint location."""


class Site:
    """Folders of one run, and the drivers on it."""

    def __init__(self, root: Path) -> None:
        self.log, self.sink, self.checkpoint = root / "app.log", root / "sink", root / "checkpoint"
        self._errors = root / "stderr.txt"
        self.sink.mkdir()
        self.log.touch()
        self.sent = 0

    def driver(self, *moment: str) -> Driver:
        args = [str(self.checkpoint), str(self.log), str(self.sink), *moment]
        return Driver(PROGRAM, args, self._errors)

    def feed(self, end: Event) -> None:
        """Append numbered lines, whose keys change with time."""
        with self.log.open("a") as log:
            while not end.wait(0.02):
                log.write(f"k{self.sent // 100:04} {self.sent}\n")
                log.flush()
                self.sent += 1

    def batches(self, stream: str) -> dict[int, list[Any]]:
        """Return a stream's records by time, as JSON has them."""
        files = self.sink.glob(f"{stream}-*.json")
        found = {int(file.stem.rpartition("-")[2]): json.loads(file.read_text()) for file in files}
        return dict(sorted(found.items()))

    def numbers(self) -> list[int]:
        return sorted(number for pairs in self.batches("pairs").values() for _, number in pairs)


@pytest.mark.storm
def test_state_through_kills(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with background(site.feed):
        for moment in KILLS:
            with site.driver(moment) as driver:
                assert driver.process.wait() == -9, "the driver was not killed at its moment"
        with site.driver() as driver:
            driver.wait_line("committed")
            driver.kill()  # and at some moment
    with site.driver() as driver:
        # And on until all keys have left the window.
        driver.run_until(lambda: len(site.numbers()) >= site.sent, more=6)
    assert site.numbers() == list(range(site.sent)), "lines were lost or came twice"
    assert not (site.sink / "differs").exists()
    pairs = site.batches("pairs")
    assert site.batches("state") == {at: of_state(pairs, at) for at in pairs}
    assert site.batches("joined") == {at: of_join(pairs, at) for at in pairs}


def of_state(pairs: dict[int, list[Any]], time_ms: int) -> list[Any]:
    """Return each key's total, and its sum in the window, as an uninterrupted run has them."""
    begin_ms = time_ms - round(WINDOW_S * 1000)
    totals, sums = totals_until(pairs, time_ms), totals_until(pairs, begin_ms)
    return [[key, [total, total - sums[key]]] for key, total in sorted(totals.items())]


def of_join(pairs: dict[int, list[Any]], time_ms: int) -> list[Any]:
    totals = totals_until(pairs, time_ms)
    return sorted([key, [number, totals[key]]] for key, number in pairs[time_ms])


def totals_until(pairs: dict[int, list[Any]], time_ms: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    for at, batch in pairs.items():
        if at <= time_ms:
            for key, number in batch:
                totals[key] += number
    return totals
