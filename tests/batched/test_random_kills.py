"""kill -9 of a program and of its Python workers, while records come and are written."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.driver import Driver, Relay
from tests.kafka.broker import Broker
from tests.kafka.test_kills import PARTITIONS, Sender
from tests.seeds import storm_seed
from tests.waiting import eventually

from .batched_program import MOST
from .reading import read_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("batched_program.py")
FAULTS = [*["worker"] * 4, "program", *["worker"] * 5] * 2


def newest(path: Path, topic: str) -> int:
    return max([int(each.stem) for each in (path / topic).glob("*.txt")], default=0)


def done(path: Path, topic: str) -> int:
    """How many records the newest checkpoint has."""
    text = (path / topic / f"{newest(path, topic)}.txt").read_text()
    return sum(last + 1 for last in json.loads(text).values())


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


@pytest.mark.storm
def test_twenty_kills(broker: Broker, tmp_path: Path) -> None:
    topic, path = broker.create_topic("killed", PARTITIONS), tmp_path / "path"
    out = broker.create_topic("killed-out")
    args = [broker.address, topic, out, str(path)]
    seed = storm_seed()
    moments = random.Random(seed)
    with Relay(PROGRAM, args, tmp_path / "stderr.txt") as relay:

        def progress(beyond: int) -> bool:
            assert driver.process.poll() is None, driver.log()[-3000:]
            return newest(path, topic) > beyond

        sender = Sender(broker, topic)
        with sender.running():
            for number, fault in enumerate(FAULTS):
                driver, before = relay.driver, newest(path, topic)
                if "program" in FAULTS[number:]:
                    relay.prepare()
                assert eventually(lambda before=before: progress(before)), driver.log()[-3000:]
                time.sleep(0.3 * moments.random())
                if fault == "worker":
                    kill_worker(driver, moments)
                else:
                    driver.end()
            driver = relay.driver
        sent = {f"line {n}".encode() for n in range(sender.sent)}
        assert eventually(lambda: progress(0) and done(path, topic) == sender.sent)
    written = Counter(read_topic(broker, out))
    assert written.keys() == sent, f"seed {seed}"
    again = written.total() - len(sent)
    assert again <= len(FAULTS) * PARTITIONS * MOST, f"seed {seed}"
