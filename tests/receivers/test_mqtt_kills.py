"""A ledger of messages over kills of the receiver and restarts of the broker: none is lost."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event

import pytest

from penstock.errors import PenstockError
from penstock.journal import (
    JournalStream,
)
from penstock.receivers import Command
from penstock.storage import open_storage
from tests.background import background
from tests.forked import forked
from tests.journal.helpers import read_all
from tests.receivers.mqtt_broker import Broker, Publisher, needs_mosquitto, publisher
from tests.receivers.mqtt_process import receive
from tests.receivers.supervised import override
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_mosquitto]


class Source:
    """Publishes numbered messages until it is told to end; knows how many the broker took."""

    def __init__(self, client: Publisher, qos: int) -> None:
        self._client = client
        self._qos = qos
        self.taken = 0

    def publish(self, end: Event) -> None:
        while not end.wait(0.005):
            self._client.publish([b"%d" % (self.taken + i) for i in range(20)], qos=self._qos)
            self.taken += 20


def receiver(journal: Path, broker: Broker, qos: int, version: str) -> AbstractContextManager[None]:
    """A receiver process, killed with SIGKILL at the end of the block unless it ended before."""
    arguments = (str(journal), broker.port, qos, version)
    return forked(receive, *arguments, errors=journal.parent / "errors")


def stored(journal: Path) -> Counter[int]:
    try:
        stream = JournalStream.open(open_storage(journal), "mqtt")
    except PenstockError:  # the first receiver did not come as far
        return Counter()
    return Counter(int(row["payload"]) for row in read_all(stream))


def command_stop(journal: Path) -> None:
    stream = JournalStream.open(open_storage(journal), "mqtt")
    override(stream, "r0", Command(stop=True))


def kill_while_publishing(folder: Path, qos: int, version: str, kills: int) -> None:
    chance = random.Random(kills)
    journal = folder / "journal"
    broker = Broker(folder)
    broker.start()
    try:
        with receiver(journal, broker, qos, version):
            assert eventually(lambda: "Sending SUBACK" in broker.log())
        with publisher(broker) as client:
            source = Source(client, qos)
            with background(source.publish):
                for _ in range(kills):
                    before = stored(journal).total()
                    with receiver(journal, broker, qos, version):
                        assert eventually(lambda before=before: stored(journal).total() > before)  # type: ignore[misc]
                        time.sleep(chance.uniform(0, 0.3))
        broker.stop()  # and what it holds for the session comes back with it
        broker.start()
        connections = broker.log().count("Sending SUBACK")
        with receiver(journal, broker, qos, version):
            assert eventually(lambda: broker.log().count("Sending SUBACK") > connections)
            assert eventually(lambda: len(stored(journal)) >= source.taken)
            command_stop(journal)
            assert eventually(lambda: "Received DISCONNECT from killed-r0" in broker.log())
    finally:
        broker.kill()
    assert set(stored(journal)) == set(range(source.taken))
    assert source.taken > kills * 20


@pytest.mark.parametrize(("qos", "version"), [(1, "3.1.1"), (2, "5")])
def test_nothing_is_lost_over_kills(tmp_path: Path, qos: int, version: str) -> None:
    kill_while_publishing(tmp_path, qos, version, kills=6)


@pytest.mark.soak
@pytest.mark.parametrize(("qos", "version"), [(2, "3.1.1"), (1, "5")])
def test_nothing_is_lost_over_many_kills(tmp_path: Path, qos: int, version: str) -> None:
    kill_while_publishing(tmp_path, qos, version, kills=50)
