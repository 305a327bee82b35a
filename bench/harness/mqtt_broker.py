"""An MQTT broker for a benchmark: Debian's mosquitto, and a backlog of messages in a session."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

__all__ = ["PAYLOAD_BYTES", "TOPIC", "fill_session", "find_mosquitto", "mqtt_broker"]

TOPIC = "plant/line-1/sensor-42/state"
PAYLOAD_BYTES = 100
_START_S = 10.0
_MIDS = 65_535
_UNACKED = 10_000
_PIECE = 500


def find_mosquitto() -> str | None:
    """Return the broker's program, None when it is not installed."""
    return shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


@contextmanager
def mqtt_broker(program: str, max_inflight: int) -> Iterator[int]:
    """Run a broker on loopback; yield its port. It ends with the block."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        port = _free_port()
        config = Path(folder, "mosquitto.conf")
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\n"
            f"max_inflight_messages {max_inflight}\nmax_queued_messages 0\nlog_dest none\n"
        )
        broker = subprocess.Popen([program, "-c", str(config)])
        try:
            _wait_for(port)
            yield port
        finally:
            broker.terminate()
            broker.wait(_START_S)


def fill_session(port: int, client_id: str, messages: int) -> None:
    """Make a persistent session of that id, subscribed with QoS 1, that has a backlog."""
    with closing(_connected(port, client_id)) as subscriber:
        topic = TOPIC.encode()
        subscriber.sendall(_packet(0x82, struct.pack(">HH", 1, len(topic)) + topic + b"\x01"))
        _read(subscriber, 5)  # SUBACK
        subscriber.sendall(b"\xe0\x00")
    with closing(_connected(port, f"{client_id}-publisher")) as publisher:
        _publish(publisher, messages)


def _publish(publisher: socket.socket, messages: int) -> None:
    topic = TOPIC.encode()
    head = struct.pack(">H", len(topic)) + topic
    acked = 0
    for sent in range(0, messages, _PIECE):
        publisher.sendall(
            b"".join(
                _packet(
                    0x32,
                    head
                    + struct.pack(">H", 1 + number % _MIDS)
                    + b"%0*d" % (PAYLOAD_BYTES, number),
                )
                for number in range(sent, min(sent + _PIECE, messages))
            )
        )
        while sent - acked > _UNACKED:
            _read(publisher, 4 * _PIECE)
            acked += _PIECE
    _read(publisher, 4 * (messages - acked))


def _connected(port: int, client_id: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), _START_S)
    name = client_id.encode()
    keeps_session = b"\x00\x04MQTT\x04\x00\x00\x00"  # protocol 3.1.1, no flags, no keep-alive
    connection.sendall(_packet(0x10, keeps_session + struct.pack(">H", len(name)) + name))
    _read(connection, 4)  # CONNACK
    return connection


def _packet(head: int, body: bytes) -> bytes:
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([head]) + length + body


def _read(connection: socket.socket, size: int) -> None:
    while size:
        received = len(connection.recv(min(size, 65_536)))
        if not received:
            raise RuntimeError("the broker closed the connection")
        size -= received


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"mosquitto did not start within {_START_S:g} s")
