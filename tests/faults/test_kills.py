"""The promise: whatever is killed, however often, each line is in the sink exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.journal import JournalStream
from penstock.receivers import read_status
from penstock.storage import open_storage
from tests.faults.driver import Driver
from tests.faults.ledger import LogWriter, Verdict, judge
from tests.faults.pids import executor_of, is_alive, parent
from tests.waiting import eventually

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("program.py")
START_S = 60.0
CLUSTER = "local-cluster[2,1,512]"
KILLS = 20


class Site:
    """Folders of one run, and the drivers on it."""

    def __init__(self, root: Path) -> None:
        self.logs, self.sink, self.checkpoint = root / "logs", root / "sink", root / "checkpoint"
        self._errors = root / "stderr.txt"
        self.logs.mkdir()
        self.writer = LogWriter(self.logs)

    @contextmanager
    def driver(self, master: str = "local[2]") -> Iterator[Driver]:
        args = [master, str(self.checkpoint), str(self.logs / "app.log*"), str(self.sink)]
        driver = Driver(PROGRAM, args, self._errors)
        try:
            yield driver
        finally:
            driver.end()

    def receiver_pid(self) -> int:
        """Return the process of the receiver that started last."""
        journal = JournalStream.open(open_storage(self.checkpoint / "journal"), "lines")
        status = read_status(journal, "r0")
        assert status is not None, "no receiver has started"
        return status.pid

    def settle(self, driver: Driver) -> Verdict:
        """Let batches run until nothing is missing, and five more; return the last verdict."""
        deadline = time.monotonic() + START_S
        while judge(self.writer.sent, self.sink).lost and time.monotonic() < deadline:
            driver.wait_line("committed", START_S)
        for _ in range(5):
            driver.wait_line("committed", START_S)
        return judge(self.writer.sent, self.sink)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_driver_killed_at_random_moments(site: Site) -> None:
    """kill -9 during start, recovery and batches: 20 times over one checkpoint location."""
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    reached_batches = 0
    with site.writer.running(lines_a_burst=20, pause_s=0.05):
        for kill in range(KILLS):
            with site.driver() as driver:
                if kill % 2:  # while it runs: some moment within the next batches
                    driver.wait_line("committed", START_S)
                    reached_batches += 1
                    time.sleep(moments.uniform(0, 0.6))
                else:  # anywhere from the process's start on
                    time.sleep(moments.uniform(1.0, 6.0))
                driver.kill()
    with site.driver() as driver:
        verdict = site.settle(driver)
    assert verdict.ok, f"seed {seed}: {verdict}"
    assert reached_batches == KILLS // 2


def test_receiver_worker_killed(site: Site) -> None:
    """The receiver's process dies: another one takes over where its journal ends."""
    with site.driver() as driver:
        with site.writer.running():
            for _ in range(3):
                driver.wait_line("committed", START_S)
                before = _wait_receiver(site)
                os.kill(before, signal.SIGKILL)
                _wait_receiver(site, other_than=before)
            driver.wait_line("committed", START_S)
        verdict = site.settle(driver)
    assert verdict.ok, verdict


def test_executor_killed(site: Site) -> None:
    """The executor dies with its receiver: the receiver goes on in another executor."""
    with site.driver(CLUSTER) as driver:
        with site.writer.running():
            driver.wait_line("committed", START_S)
            receiver = _wait_receiver(site)
            os.kill(executor_of(receiver), signal.SIGKILL)
            _wait_receiver(site, other_than=receiver)
            driver.wait_line("committed", START_S)
        verdict = site.settle(driver)
    assert verdict.ok, verdict


def test_driver_that_wakes_beside_its_successor(site: Site) -> None:
    """It slept, and its lock was out of reach: it ends by itself, and ends no other's receivers."""
    with site.driver() as first, ExitStack() as later:
        with site.writer.running():
            first.wait_line("committed", START_S)
            before = _wait_receiver(site)
            os.kill(first.process.pid, signal.SIGSTOP)
            (site.checkpoint / "driver.lock").unlink()
            second = later.enter_context(site.driver())
            second.wait_line("committed", START_S)
            receiver = _wait_receiver(site, other_than=before)
            os.kill(first.process.pid, signal.SIGCONT)
            assert first.process.wait(START_S) != 0
        verdict = site.settle(second)
        assert site.receiver_pid() == receiver
    assert verdict.ok, verdict


def test_receiver_that_wakes_after_its_successor_started(site: Site) -> None:
    """A stopped receiver outlives its executor, wakes beside its successor, and does no harm."""
    with site.driver(CLUSTER) as driver:
        with site.writer.running():
            driver.wait_line("committed", START_S)
            zombie = _wait_receiver(site)
            executor, daemon = executor_of(zombie), parent(zombie)
            # The daemon would end the zombie, and the kernel hangs up on a process group that has a
            # stopped member when it is orphaned: so orphan it first, stop it before it notices.
            os.kill(daemon, signal.SIGKILL)
            assert eventually(lambda: not is_alive(daemon))
            os.kill(zombie, signal.SIGSTOP)
            os.kill(executor, signal.SIGKILL)
            _wait_receiver(site, other_than=zombie)
            driver.wait_line("committed", START_S)
            os.kill(zombie, signal.SIGCONT)
            assert eventually(lambda: not is_alive(zombie)), "the zombie lives on"
            driver.wait_line("committed", START_S)
        verdict = site.settle(driver)
    assert verdict.ok, verdict


def _wait_receiver(site: Site, other_than: int | None = None) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            pid = site.receiver_pid()
        except Exception:
            pid = None
        if pid is not None and pid != other_than and Path(f"/proc/{pid}").exists():
            return pid
        time.sleep(0.05)
    raise TimeoutError("no receiver came up")
