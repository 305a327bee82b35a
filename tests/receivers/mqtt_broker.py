"""A real MQTT broker of a test's own: Debian's mosquitto on a free port of the loopback."""

from __future__ import annotations

import getpass
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from tests.free_port import free_port
from tests.waiting import WAIT_S, eventually

__all__ = ["Broker", "needs_mosquitto", "publisher"]

_MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")

needs_mosquitto = pytest.mark.skipif(
    _MOSQUITTO is None, reason="MQTT: NOT PROVED: mosquitto is not installed"
)


class Broker:
    """A mosquitto that can be killed and started again on the same port.

    Args:
        folder: for its configuration, state and log.
        settings: lines of mosquitto.conf; by default anyone may connect.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.port = free_port()
        # Options of a listener stand after it.
        lines = [
            f"listener {self.port} 127.0.0.1",
            *(settings or ["allow_anonymous true"]),
            f"user {getpass.getuser()}",  # root's mosquitto would be a user who may not write here
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            f"log_dest file {folder / 'log'}",
            "log_type all",
        ]
        self._config = folder / "mosquitto.conf"
        self._config.write_text("".join(line + "\n" for line in lines))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it, with the state that its last orderly stop left."""
        assert _MOSQUITTO is not None
        self._process = subprocess.Popen(
            [_MOSQUITTO, "-c", str(self._config)], stderr=subprocess.DEVNULL
        )
        assert eventually(self._answers), "mosquitto did not start"

    def stop(self) -> None:
        """End it in order: it writes its sessions and messages to disk."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL: what it did not write is lost."""
        self._end(signal.SIGKILL)

    def log(self) -> str:
        """Return what it logged so far."""
        with suppress(FileNotFoundError):
            return (self.folder / "log").read_text()
        return ""

    def has_logged(self, text: str) -> bool:
        """Whether it has logged such a line so far."""
        return text in self.log()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(WAIT_S)
            self._process = None

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@contextmanager
def publisher(broker: Broker, port: int | None = None) -> Iterator[Publisher]:
    """Connect a client that publishes; ``port`` is that of another listener."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="publisher")
    client.connect("127.0.0.1", port or broker.port)
    client.loop_start()
    try:
        yield Publisher(client)
    finally:
        client.disconnect()
        client.loop_stop()


class Publisher:
    """Publishes, and waits until the broker took it."""

    def __init__(self, client: paho.Client) -> None:
        self._client = client

    def publish(
        self,
        payloads: Sequence[str | bytes],
        *,
        qos: int = 1,
        topic: str = "plant/a",
        retain: bool = False,
    ) -> None:
        sent = [self._client.publish(topic, payload, qos, retain) for payload in payloads]
        for message in sent:
            message.wait_for_publish(WAIT_S)
            assert message.is_published()
