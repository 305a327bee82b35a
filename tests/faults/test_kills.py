"""The promise: whatever is killed, however often, each line is in the sink exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.errors import PenstockError
from penstock.journal import JournalStream
from penstock.receivers import read_status
from penstock.storage import open_storage
from tests.faults.driver import Driver
from tests.faults.ledger import LogWriter, Verdict, judge
from tests.faults.pids import executor_of, is_alive, is_stopped, orphan_and_stop
from tests.seeds import storm_seed
from tests.waiting import eventually

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("program.py")
CLUSTER = "local-cluster[2,1,512]"
KILLS = 20
MOMENTS = [
    "after-acquire-1",  # the location is its own, and nothing is planned
    "before-plan-2",
    "after-plan-2",  # planned, and as good as not begun
    "before-commit-1",  # the very next run: written again, and not committed again
    "after-commit-2",
    "before-retire-2",
    "after-retire-2",
]
"""What ends each driver, one after the other, on one checkpoint location."""

SLEEPS = [
    "before-plan-2",  # it creates an entry that was purged
    "after-plan-2",  # its batch has not begun
]
"""Where drivers fall asleep, one after the other."""
TAKEN_OVER = [  # by the driver's next batch, or by its next look at a receiver
    "ConcurrentDriverError: another driver has taken over",
    "FencedError: a later run took this receiver over",
]
BATCHES = 20
"""That a driver runs while others sleep: many times what the logs keep."""


class Site:
    """Folders of one run, and the drivers on it."""

    def __init__(self, root: Path) -> None:
        self.logs, self.sink, self.checkpoint = root / "logs", root / "sink", root / "checkpoint"
        self._root = root
        self._drivers = count()
        self.logs.mkdir()
        self.writer = LogWriter(self.logs)

    def driver(self, master: str = "local[2]", *moment: str) -> Driver:
        stream = json.dumps(["tailStream", {"path": f"{self.logs}/app.log*", "name": "lines"}])
        args = [master, str(self.checkpoint), str(self.sink), stream, *moment]
        errors = self._root / f"stderr-{next(self._drivers)}.txt"
        return Driver(PROGRAM, args, errors, own_pythons=master == CLUSTER)

    def receiver_pid(self) -> int | None:
        """Return the living process of the receiver that started last, None without one."""
        with suppress(PenstockError):
            journal = JournalStream.open(open_storage(self.checkpoint / "journal"), "lines")
            status = read_status(journal, "r0")
            if status is not None and is_alive(status.pid):
                return status.pid
        return None

    def settle(self, driver: Driver) -> Verdict:
        """Let batches run until nothing is missing, and five more; return the last verdict."""
        driver.run_until(lambda: not judge(self.writer.sent, self.sink).lost, more=5)
        return judge(self.writer.sent, self.sink)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(["after-plan-2", "before-commit-1"], id="some"),
        pytest.param(MOMENTS, id="all", marks=pytest.mark.storm),
    ],
)
def test_driver_killed_at_each_step(site: Site, moments: list[str]) -> None:
    with site.writer.running(lines_a_burst=20, pause_s=0.05):
        for moment in moments:
            with site.driver("local[2]", moment) as driver:
                assert driver.process.wait() == -signal.SIGKILL, moment
    with site.driver() as driver:
        verdict = site.settle(driver)
    assert verdict.ok, verdict


@pytest.mark.soak
def test_driver_killed_at_random_moments(site: Site) -> None:
    """kill -9 during start, recovery and batches: 20 times over one checkpoint location."""
    seed = storm_seed()
    moments = random.Random(seed)
    reached_batches = 0
    with site.writer.running(lines_a_burst=20, pause_s=0.05):
        for kill in range(KILLS):
            with site.driver() as driver:
                if kill % 2:  # while it runs: some moment within the next batches
                    driver.wait_line("committed")
                    reached_batches += 1
                    time.sleep(moments.uniform(0, 0.6))
                else:  # anywhere from the process's start on
                    time.sleep(moments.uniform(1.0, 6.0))
                driver.kill()
    with site.driver() as driver:
        verdict = site.settle(driver)
    assert verdict.ok, f"seed {seed}: {verdict}"
    assert reached_batches == KILLS // 2


def test_driver_that_wakes_beside_its_successor(site: Site) -> None:
    """It slept, and its lock was out of reach: it ends by itself, and ends no other's receivers."""
    with site.driver() as first, ExitStack() as later:
        with site.writer.running():
            first.wait_line("committed")
            before = _wait_receiver(site)
            os.kill(first.process.pid, signal.SIGSTOP)
            (site.checkpoint / "driver.lock").unlink()
            second = later.enter_context(site.driver())
            second.wait_line("committed")
            receiver = _wait_receiver(site, other_than=before)
            os.kill(first.process.pid, signal.SIGCONT)
            assert first.process.wait() != 0
        verdict = site.settle(second)
        assert site.receiver_pid() == receiver
    assert verdict.ok, verdict


@pytest.mark.storm
def test_drivers_that_sleep_through_a_purge(site: Site) -> None:
    """Each finds that its batch was planned by another, long ago, and ends; no line is affected."""
    with ExitStack() as drivers:
        with site.writer.running(lines_a_burst=20, pause_s=0.05):
            sleepers = [
                _fall_asleep(
                    site, drivers.enter_context(site.driver("local[2]", moment, "SIGSTOP"))
                )
                for moment in SLEEPS
            ]
            newest = _planned(site)[-1]
            second = drivers.enter_context(site.driver())
            second.wait_batches(BATCHES)
            receiver = _wait_receiver(site)
            assert _planned(site)[0] > newest + 1, "what the sleepers plan next was not purged"
            for sleeper in sleepers:  # by turns, as both may write the same batch's files
                os.kill(sleeper.process.pid, signal.SIGCONT)
                assert sleeper.process.wait() == 1
                assert any(told in sleeper.log() for told in TAKEN_OVER), sleeper.log()
            second.wait_batches(5)
            assert site.receiver_pid() == receiver
            second.kill()
            third = drivers.enter_context(site.driver())
            third.wait_line("committed")
        verdict = site.settle(third)
    assert verdict.ok, verdict


def _fall_asleep(site: Site, driver: Driver) -> Driver:
    """Wait until a driver has stopped itself, and move its lock out of reach."""
    assert eventually(lambda: is_stopped(driver.process.pid)), driver.log()
    (site.checkpoint / "driver.lock").unlink()
    return driver


def _planned(site: Site) -> tuple[int, ...]:
    return CheckpointLocation(site.checkpoint).offsets.batch_ids()


@pytest.mark.soak
def test_receivers_killed_and_woken(site: Site) -> None:
    """All in one life of a program; test_sources does it to each source, and kills that, too."""
    with site.driver(CLUSTER) as driver:
        with site.writer.running():
            driver.wait_line("committed")
            for _ in range(3):
                _kill_worker(site)
                driver.wait_line("committed")
            _kill_executor(site)
            driver.wait_line("committed")
            zombie = _stop_and_replace(site)
            driver.wait_line("committed")
            os.kill(zombie, signal.SIGCONT)  # beside its successor
            assert eventually(lambda: not is_alive(zombie)), "the zombie lives on"
            driver.wait_line("committed")
        verdict = site.settle(driver)
    assert verdict.ok, verdict


def _kill_worker(site: Site) -> None:
    """The receiver's process dies."""
    receiver = _wait_receiver(site)
    os.kill(receiver, signal.SIGKILL)
    _wait_receiver(site, other_than=receiver)


def _kill_executor(site: Site) -> None:
    """The executor dies with its receiver, which goes on in another executor."""
    receiver = _wait_receiver(site)
    os.kill(executor_of(receiver), signal.SIGKILL)
    _wait_receiver(site, other_than=receiver)


def _stop_and_replace(site: Site) -> int:
    """Stop a receiver, which outlives its executor; return its process when it has a successor."""
    while True:
        zombie = _wait_receiver(site)
        try:
            orphan_and_stop(zombie)
        except (LookupError, OSError):  # it ended before it was stopped: strike the next one
            continue
        _wait_receiver(site, other_than=zombie)
        return zombie


def _wait_receiver(site: Site, other_than: int | None = None) -> int:
    assert eventually(lambda: site.receiver_pid() not in (None, other_than))
    return site.receiver_pid() or _wait_receiver(site, other_than)
