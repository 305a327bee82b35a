"""kill -9 of a program and of its Python workers, while records come and are written."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tests.faults.driver import Driver
from tests.kafka.broker import Broker
from tests.kafka.test_kills import PARTITIONS, Sender
from tests.waiting import eventually

from .batched_program import MOST
from .reading import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("batched_program.py")
FAULTS = ["worker", "worker", "worker", "program", "worker"] * 4
_number = count()


def newest(path: Path, topic: str) -> int:
    return max([int(each.stem) for each in (path / topic).glob("*.txt")], default=0)


def workers_of(driver: Driver) -> list[int]:
    """The Python workers of a program, by process id: what its daemon has forked."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                program, *arguments = (folder / "cmdline").read_bytes().split(b"\0")
                is_worker = b"python" in program and any(b"daemon" in each for each in arguments)
                if is_worker and int(status[3]) == driver.process.pid:  # its session
                    found.append(int(folder.name))
    return found


def kill_worker(driver: Driver, moments: random.Random) -> None:
    assert eventually(lambda: bool(workers_of(driver)))
    with suppress(ProcessLookupError, IndexError):
        os.kill(moments.choice(workers_of(driver)), signal.SIGKILL)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_twenty_kills(broker: Broker, tmp_path: Path, delivery: str) -> None:
    topic, path = broker.create_topic(f"killed-{next(_number)}", PARTITIONS), tmp_path / "path"
    out = broker.create_topic(f"{topic}-out")
    args = [broker.address, topic, out, str(path), delivery]
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    driver = Driver(PROGRAM, args, tmp_path / "stderr.txt")

    def progress(beyond: int) -> bool:
        assert driver.process.poll() is None, driver.log()[-3000:]
        return newest(path, topic) > beyond

    try:
        sender = Sender(broker, topic)
        with sender.running():
            for fault in FAULTS:
                before = newest(path, topic)
                assert eventually(lambda before=before: progress(before)), driver.log()[-3000:]
                time.sleep(0.3 * moments.random())
                if fault == "worker":
                    kill_worker(driver, moments)
                else:
                    driver.end()
                    driver = Driver(PROGRAM, args, tmp_path / "stderr.txt")
        expected = {f"line {n}".encode() for n in range(sender.sent)}
        assert eventually(lambda: progress(0) and set(read_topic(broker, out)) >= expected)
    finally:
        driver.end()
    times = Counter(read_topic(broker, out))
    assert times.keys() == expected, f"seed {seed}"
    again = sum(times.values()) - len(times)
    if delivery == "exactly_once":
        assert again == 0, f"seed {seed}"
    else:
        assert again <= len(FAULTS) * PARTITIONS * MOST, f"seed {seed}"
