"""getOrCreate in fresh processes, after kill -9: as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.driver import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("recoverable_program.py")
READY = "ready recoverable local[2] yes yes"


class Site:
    """What the runs of a program share."""

    def __init__(self, root: Path) -> None:
        self.checkpoint, self.log, self.sink = root / "checkpoint", root / "log", root / "sink"
        self.errors = root / "stderr.txt"
        self.sink.mkdir()
        self.log.touch()

    def driver(self) -> Driver:
        return Driver(PROGRAM, [str(self.checkpoint), str(self.log), str(self.sink)], self.errors)

    def feed(self, *lines: str) -> None:
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def seen(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for file in self.sink.glob("[0-9]*"):
            for line in file.read_text().splitlines():
                word, count = line.split()
                counts[word] += int(count)
        return counts


def first_line(driver: Driver) -> str:
    return driver.wait_line("")


@pytest.mark.storm
def test_runs_that_are_killed_give_what_an_uninterrupted_one_gives(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.driver() as driver:
        assert first_line(driver) == "created"
        assert first_line(driver) == READY
        site.feed("To be", "or not to be")
        driver.wait_records(2)
        (site.sink / "hang").touch()
        site.feed("that is")
        hung = driver.wait_line("hanging").split()[1]
        driver.kill()
    (site.sink / "hang").unlink()
    site.feed("the question")  # while it is down

    with site.driver() as driver:
        assert first_line(driver) == READY
        # The batch that was running runs again, first, and with the same record.
        assert driver.wait_line("committed").split()[2:] == ["1", hung]
        driver.wait_records(1)
        site.feed("whether")
        driver.kill()  # at any moment of what that line sets off

    with site.driver() as driver:
        assert first_line(driver) == READY
        site.feed("TO BE")
        driver.wait_records(1)
        driver.finish()
    assert site.seen() == Counter(site.log.read_text().lower().split())
