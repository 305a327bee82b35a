"""A storm over a program that copies topics exactly once: nothing lost, nothing doubled.

Driver, executors, their Python workers and the broker are killed or paused at random, while topics
grow and are compacted and other producers abort their transactions. A plain read_committed consumer
counts.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from tests.faults.driver import Driver, Relay
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import committed
from tests.kafka.test_kills import Sender
from tests.seeds import storm_seed
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("sink_program.py")
FAULTS = {"driver": 1, "broker": 2, "executor": 2, "pause of broker": 3, "pause": 4, "worker": 8}
"""How many of each in 20: kills, but for the pauses of a broker or worker."""


class Site:
    """A broker, a program over it that is kept running, and what else writes to its topics."""

    def __init__(self, root: Path, moments: random.Random) -> None:
        self.broker = Broker(root / "broker", is_killed=True)
        self._moments = moments
        args = ["local-cluster[2,1,512]", self.broker.address, "in-.*", "out"]
        self._relay = Relay(PROGRAM, [*args, str(root / "checkpoint")], root / "stderr.txt")
        self._end = threading.Event()
        self.struck: Counter[str] = Counter()
        self.result: Counter[str] = Counter()
        """What is in the target when all has come."""

    @contextmanager
    def running(self) -> Iterator[Sender]:
        with self._relay:
            self.prepare()
            with self.broker.running():
                yield from self._run()

    def _run(self) -> Iterator[Sender]:
        self.broker.create_topic(
            "in-numbers",
            3,
            cleanup_policy="compact",
            segment_ms="1000",
            min_cleanable_dirty_ratio="0.01",
        )
        self.broker.create_topic("out", 2)
        sender = Sender(self.broker, "in-numbers")
        others = threading.Thread(target=self._disturb)
        with sender.running():
            others.start()
            try:
                yield sender
            finally:
                self._end.set()
                others.join()
        self.settle(sender)

    @property
    def driver(self) -> Driver:
        """The program; when it has ended, the next one."""
        return self._relay.driver

    def prepare(self) -> None:
        """Start the next program, which waits."""
        self._relay.prepare()

    def wait_records(self, count: int) -> None:
        """Wait until more records are committed, by however many drivers."""
        while True:
            try:
                return self.driver.wait_records(count)
            except RuntimeError:  # it ended: a broker that is away ends a program, too
                continue

    def strike(self, kind: str) -> None:
        """Let a fault happen, some time from now."""
        time.sleep(self._moments.uniform(0, 0.5))
        if kind == "broker":
            self.broker.kill()
            time.sleep(self._moments.random())
            self.broker.start()
        elif kind == "driver":
            self.driver.end()
        elif kind == "pause of broker":
            self.broker.pause()
            time.sleep(self._moments.random())
            self.broker.resume()
        else:
            found = list[int]()
            name = "executor" if kind == "executor" else "worker"
            is_there = eventually(lambda: bool(found.extend(self._processes(name)) or found))
            assert is_there, f"no {name}: {self.driver.stacks()}"
            with suppress(ProcessLookupError):
                chosen = self._moments.choice(found)
                os.kill(chosen, signal.SIGSTOP if kind == "pause" else signal.SIGKILL)
                if kind == "pause":
                    time.sleep(self._moments.random())
                    os.kill(chosen, signal.SIGCONT)
        self.struck[kind] += 1

    def settle(self, sender: Sender) -> None:
        """Wait until all that was sent has come."""

        def all_came() -> bool:
            self.wait_records(0)  # starts the program again if it ended
            self.result = committed(self.broker, "out")
            return len(self.result) >= sender.sent

        did_come = eventually(all_came)
        assert did_come, f"{len(self.result)} of {sender.sent}: {self.driver.stacks()}"

    def _processes(self, kind: str) -> list[int]:
        name = b"CoarseGrainedExecutorBackend" if kind == "executor" else b"worker_daemon"
        session = self.driver.process.pid  # of the next program, if this one has ended
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(folder.name)
                is_one = name in (folder / "cmdline").read_bytes()
                # Not by descent: workers outlive their daemon.
                if is_one and os.getsid(pid) == session:
                    found.append(pid)
        return found

    def _disturb(self) -> None:
        """Abort transactions, and write what compaction removes; once, add a partition."""
        conf = {**self.broker.conf, "transactional.id": "other", "log_level": 0}
        while not self._end.wait(0.5):
            with suppress(KafkaException):
                producer = Producer(conf)
                producer.init_transactions(5)
                for value in ("junk", "aborted"):
                    producer.begin_transaction()
                    producer.produce("in-numbers", value, "other", partition=0)
                    producer.flush(5)
                    is_junk = value == "junk"
                    producer.commit_transaction(5) if is_junk else producer.abort_transaction(5)


@pytest.mark.storm
@pytest.mark.parametrize(
    "faults", [20, pytest.param(200, marks=pytest.mark.soak)], ids=["twenty", "two-hundred"]
)
def test_nothing_is_lost_or_doubled(tmp_path: Path, faults: int) -> None:
    seed = storm_seed()
    moments = random.Random(seed)
    site = Site(tmp_path, moments)
    with site.running() as sender:
        site.wait_records(1)
        kinds = [kind for kind, often in FAULTS.items() for _ in range(often * faults // 20)]
        moments.shuffle(kinds)
        for number, kind in enumerate(kinds):
            if "driver" in kinds[number:]:
                site.prepare()
            site.strike(kind)
            if number == faults // 2:
                site.broker.add_partitions("in-numbers", 4)
                sender.partitions = 4
            if number % 4 == 3:  # else faults overlap
                site.wait_records(20)
        site.wait_records(20)
    lost = {f"line {n}" for n in range(sender.sent)} - site.result.keys()
    doubled = {value: times for value, times in site.result.items() if times > 1}
    told = f"seed {seed}, {dict(site.struck)}: {sender.sent} sent"
    print(told)
    assert not lost, f"{told}, {len(lost)} lost: {sorted(lost)[:5]}"
    assert not doubled, f"{told}, {len(doubled)} doubled: {sorted(doubled)[:5]}"
    assert site.struck.total() == faults, told
    assert "aborted" not in site.result
