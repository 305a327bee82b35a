"""A publisher at QoS 1 to a real broker, which the receivers reach through a proxy that can be cut.

What the broker acked to the publisher must arrive. Some of it may come twice: what the broker had
sent and has no ack for when a receiver's connection ends, it sends again. Its log tells how often
it did, so each copy of a record that came once more needs a delivery that it says was one more.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

from tests.background import background
from tests.faults.proxy import Proxy
from tests.faults.sources.source import PAUSE_S, PLACES, Balance, ReceiverSpec, Source, exactly_once
from tests.receivers.mqtt_broker import Broker, Publisher, publisher
from tests.waiting import eventually

_SENT_AGAIN = b" (d1, "
"""In mosquitto's line for a PUBLISH to a client: it was sent before, DUP is set."""
_A_BURST = 20


class MqttSource(Source):
    def __init__(self, root: Path) -> None:
        folder = root / "broker"
        folder.mkdir()
        self._broker = Broker(folder)
        self._proxy = Proxy(self._broker.port)
        self._acked: list[str] = []
        self._log = folder / "log"
        self._read_bytes = self._sent_again = 0

    def receiver(self, place: str) -> ReceiverSpec:
        port, topic = self._proxy.port, f"numbers/{place}"
        arguments = {"host": "127.0.0.1", "port": port, "topics": topic, "client_id": place}
        # fmt: off
        command = (
            "mqtt", topic, "--host", "127.0.0.1", "--port", str(port), "--client-id", place,
        )
        # fmt: on
        return ReceiverSpec("MqttReceiver", arguments, command)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._broker.start()
        try:
            with self._proxy.running():
                yield
        finally:
            self._broker.stop()

    @contextmanager
    def sending(self) -> Iterator[None]:
        # The broker keeps messages for those who subscribed once, so that has to come first.
        subscribed = [f"Sending SUBACK to {place}" for place in PLACES]
        assert eventually(lambda: all(line in self._broker.log() for line in subscribed))
        with (
            publisher(self._broker) as client,
            background(partial(self._publish, client)),
        ):
            yield

    def cut(self) -> None:
        self._proxy.cut()

    def balance(self, seen: Counter[str]) -> Balance:
        return exactly_once(self._acked, seen, may_twice=self._count_sent_again())

    def _count_sent_again(self) -> int:
        """Return how many deliveries were not the first of their message; reads on in the log."""
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_bytes += len(line)
                self._sent_again += b"Sending PUBLISH to " in line and _SENT_AGAIN in line
        return self._sent_again

    def _publish(self, client: Publisher, end: Event) -> None:
        for number in itertools.count():
            if end.wait(PAUSE_S):
                return
            for place in PLACES:
                payloads = [f"{place}:{number}:{n}" for n in range(_A_BURST)]
                client.publish(payloads, topic=f"numbers/{place}")
                self._acked += payloads
