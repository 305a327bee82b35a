"""Receivers of one group are killed, put to sleep, woken and replaced: each record once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.journal.layout import WriterId
from tests.ingest_process import open_stream, records
from tests.kafka.broker import Broker
from tests.kafka.receiving import HASTY, Receiving
from tests.kafka.test_kills import Sender
from tests.seeds import storm_seed
from tests.waiting import eventually

pytestmark = pytest.mark.slow

PARTITIONS = 3


class Site:
    """Two receivers of a topic, a sender, and what befalls them."""

    def __init__(self, folder: Path, broker: Broker, topic: str, conf: dict[str, Any]) -> None:
        self.folder = folder
        self._broker = broker
        self._topic = topic
        # With the protocol of Kafka 4, sessions are the broker's to time.
        hasty = {} if "group.protocol" in conf else HASTY
        self._conf = {**broker.conf, **hasty, "group.id": topic, **conf}
        self._partitions = PARTITIONS
        self._zombies: list[Receiving] = []
        broker.create_topic(topic, PARTITIONS)
        self._alive = {name: self._start(name) for name in "ab"}

    def kill(self, name: str) -> None:
        self._alive[name].kill()
        self._alive[name] = self._start(name)

    def sleep_through_a_rebalance(self, name: str) -> None:
        """The other receiver takes its partitions; when it wakes, its writer is sealed."""
        self._alive[name].sleep()
        time.sleep(HASTY["session.timeout.ms"] / 1000 + 0.7)  # type: ignore[operator]
        self._alive[name].wake()

    def sleep_and_be_replaced(self, name: str) -> None:
        """Two of one name; the earlier one wakes at the end."""
        zombie = self._alive[name]
        zombie.sleep()
        self._zombies.append(zombie)
        self._alive[name] = self._start(name)

    def come_and_go(self, name: str) -> None:
        """A third receiver, for two rebalances in mid-block."""
        third = self._start(f"{name}2")
        self.wait_more(20)
        assert third.drain() == 0

    def grow(self, _: str) -> None:
        self._partitions += 1
        self._broker.add_partitions(self._topic, self._partitions)

    def wake_zombies(self) -> None:
        for zombie in self._zombies:
            zombie.wake()

    def wait_more(self, count: int) -> None:
        before = self.stored().total()
        assert eventually(lambda: self.stored().total() >= before + count), self.logs()

    def stored(self) -> Counter[str]:
        return stored_in(self.folder / "journal")

    def logs(self) -> str:
        return "\n".join(f"{each}:\n{each.read_text()[-6000:]}" for each in self._logs())

    def drain(self) -> None:
        for receiver in self._alive.values():
            assert receiver.drain() == 0, self.logs()

    def end(self) -> None:
        for receiver in [*self._alive.values(), *self._zombies]:
            receiver.kill()

    def _start(self, name: str) -> Receiving:
        return Receiving(self.folder, name, [self._topic], self._conf)

    def _logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))


def stored_in(journal: Path) -> Counter[str]:
    try:
        return Counter(value.decode() for value in records(journal))
    except PenstockError:  # the first receiver did not come as far
        return Counter()


@contextmanager
def site(folder: Path, broker: Broker, topic: str, conf: dict[str, Any]) -> Iterator[Site]:
    made = Site(folder, broker, topic, conf)
    try:
        yield made
    finally:
        made.end()


FAULTS = (
    Site.kill,
    Site.sleep_through_a_rebalance,
    Site.sleep_and_be_replaced,
    Site.come_and_go,
)


def storm(folder: Path, broker: Broker, topic: str, faults: int, conf: dict[str, Any]) -> None:
    seed = storm_seed()
    chance = random.Random(seed)
    struck = [*FAULTS] * (faults // len(FAULTS) + 1)
    struck = [Site.grow, *struck][:faults]
    chance.shuffle(struck)
    told = f"seed {seed}: {[each.__name__ for each in struck]}"
    with site(folder, broker, topic, conf) as here:
        sender = Sender(broker, topic)
        with sender.running():
            here.wait_more(20)
            for fault in struck:
                fault(here, chance.choice("ab"))
                time.sleep(chance.uniform(0, 0.5))
            here.wait_more(20)
        here.wake_zombies()
        assert eventually(lambda: len(here.stored()) >= sender.sent), (told, here.logs())
        here.drain()
        stored = here.stored()
        twice = {line: count for line, count in stored.items() if count > 1}
        assert not twice, (told, here.logs())
        assert len(stored) == sender.sent, told


def test_a_receiver_that_slept_through_a_rebalance_is_sealed_and_goes_on(
    tmp_path: Path, broker: Broker
) -> None:
    conf = {**broker.conf, **HASTY, "group.id": "asleep"}
    broker.create_topic("asleep", 2)
    for partition in (0, 1):
        broker.produce("asleep", [b"a%d" % partition], partition)
    journal = tmp_path / "journal"
    slow = Receiving(tmp_path, "slow", ["asleep"], conf)
    other = None
    try:
        assert eventually(lambda: stored_in(journal).total() == 2)
        slow.sleep()
        other = Receiving(tmp_path, "other", ["asleep"], conf)
        for partition in (0, 1):
            broker.produce("asleep", [b"b%d" % partition], partition)
        assert eventually(lambda: stored_in(journal).total() == 4)
        slow.wake()
        sent = 4

        def has_begun_again() -> bool:
            nonlocal sent
            for partition in (0, 1):  # it finds that it is sealed when it publishes
                broker.produce("asleep", [b"more%d" % sent], partition)
                sent += 1
            return WriterId("slow", 1) in open_stream(journal).writers()

        assert eventually(has_begun_again)
        assert eventually(lambda: stored_in(journal).total() >= sent)
        assert (slow.drain(), other.drain()) == (0, 0)
    finally:
        for receiver in (slow, other):
            if receiver is not None:
                receiver.kill()
    assert set(stored_in(journal).values()) == {1}
    assert stored_in(journal).total() == sent


@pytest.mark.storm
def test_each_record_is_stored_once_over_a_storm(tmp_path: Path, broker: Broker) -> None:
    storm(tmp_path, broker, "storm", 15, {})


@pytest.mark.soak
@pytest.mark.parametrize(
    "conf",
    [
        {"partition.assignment.strategy": "range"},
        {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.instance.id": "static"},
        {"group.protocol": "consumer"},
    ],
    ids=["eager", "cooperative", "static", "consumer"],
)
def test_each_record_is_stored_once_over_a_long_storm(
    tmp_path: Path, broker: Broker, conf: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    storm(tmp_path, broker, f"long-{request.node.callspec.id}", 60, conf)
