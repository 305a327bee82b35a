"""What MqttReceiver says of wrong arguments, and of brokers that refuse or misbehave.

The brokers here are scripted: a real one gives most of these answers only after much set-up.
"""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import paho.mqtt.client as paho
import pytest

from penstock.errors import ConfigError, ReceiverError
from penstock.receivers import MqttReceiver
from penstock.receivers.mqtt import client, network
from penstock.testing import RecordingHost
from tests.free_port import free_port
from tests.waiting import WAIT_S

CONNACK_3, CONNACK_5 = b"\x20\x02\x00\x00", b"\x20\x03\x00\x00\x00"
SUBACK_3, SUBACK_5 = b"\x90\x03\x00\x01\x01", b"\x90\x04\x00\x01\x00\x01"
CLOSE = b""


@contextmanager
def scripted(*answers: bytes) -> Iterator[int]:
    """Serve connections that answer each thing a client sends with the next of these bytes."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    answer(connection)

    def answer(connection: socket.socket) -> None:
        for reply in answers:
            if not connection.recv(65_536):
                return
            if reply == CLOSE:
                return
            connection.sendall(reply)
        while connection.recv(65_536):
            pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_S)
            assert not thread.is_alive(), "the receiver left a connection open"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait briefly for brokers that do not answer."""
    monkeypatch.setattr(network, "_GOODBYE_S", 0.1)
    monkeypatch.setattr(client, "_CONNECT_TIMEOUT_S", 0.5)


def first_error(port: int, **options: Any) -> ReceiverError:
    host = RecordingHost(expect_errors=True)
    with host.run(MqttReceiver("127.0.0.1", port, "plant/#", **options)):
        host.wait_until(lambda: bool(host.errors))
    error = host.errors[0].error
    assert isinstance(error, ReceiverError)
    assert error.ids == {"broker": f"127.0.0.1:{port}", "client_id": "penstock-stream-r0"}
    assert host.restarts == []
    return error


@pytest.mark.parametrize(
    ("version", "answers", "reason", "hint"),
    [
        ("3.1.1", [b"\x20\x02\x00\x05"], "Not authorized", "password_file"),
        ("3.1.1", [b"\x20\x02\x00\x04"], "Bad user name or password", "password_file"),
        ("3.1.1", [b"\x20\x02\x00\x02"], "Client identifier not valid", "client_id"),
        ("3.1.1", [b"\x20\x02\x00\x03"], "Server unavailable", "log"),
        ("5", [b"\x20\x03\x00\x87\x00"], "Not authorized", "access rules"),
        ("5", [b"\x20\x03\x00\x84\x00"], "Unsupported protocol version", "version"),
        ("5", [b"\x20\x03\x00\x97\x00"], "Quota exceeded", "sessions"),
        ("3.1.1", [CONNACK_3, b"\x90\x03\x00\x01\x80"], "refused 'plant/#'", "log"),
        ("5", [CONNACK_5, b"\x90\x04\x00\x01\x00\x87"], "refused 'plant/#': Not auth", "access"),
        ("5", [CONNACK_5, b"\x90\x04\x00\x01\x00\x9e"], "Shared subscription", "share_group"),
        ("3.1.1", [CONNACK_3, b"\x90\x03\x00\x01\x00"], "only QoS 0 for 'plant/#'", "max_qos"),
        ("5", [CONNACK_5, SUBACK_5 + b"\xe0\x01\x8e"], "Session taken over", "client_id"),
        ("5", [CONNACK_5, SUBACK_5 + b"\xe0\x01\x95"], "Packet too large", "topic filters"),
        ("5", [CONNACK_5, SUBACK_5 + b"\xe0\x01\x8b"], "Server shutting down", "restarts"),
        ("3.1.1", [CLOSE], "closed the connection", "same id"),
        (
            "3.1.1",
            [b"HTTP/1.1 400 Bad Request\r\n" + bytes(99)],
            "malformed",
            "those of an MQTT broker",
        ),
        ("5", [CONNACK_5 + b"\xe0\x01\x07"], "malformed", "MQTT broker"),
        ("3.1.1", [CONNACK_3, SUBACK_3 + b"\x36\x04\x00\x01tx"], "malformed MQTT", "MQTT broker"),
    ],
)
def test_each_answer_is_named_with_what_fixes_it(
    version: str, answers: list[bytes], reason: str, hint: str
) -> None:
    with scripted(*answers) as port:
        error = first_error(port, version=version)
    assert reason in error.message
    assert hint in str(error)


def test_a_connection_is_closed_whatever_the_broker_says_last() -> None:
    message_of_qos_0, malformed = b"\x30\x04\x00\x01tx", b"\x36\x04\x00\x01tx"
    host = RecordingHost()
    with (
        scripted(CONNACK_3, SUBACK_3 + message_of_qos_0, malformed) as port,
        host.run(MqttReceiver("127.0.0.1", port, "plant/#")),
    ):
        host.wait_for_records(1)


def test_an_absent_broker_is_tried_again_with_growing_delays() -> None:
    port = free_port()
    host = RecordingHost(expect_errors=True)
    with host.run(MqttReceiver("127.0.0.1", port, "plant/#")):
        host.wait_until(lambda: len(host.errors) >= 4)
    delays = [int(report.message.split()[-2]) for report in host.errors]
    assert 50 <= delays[0] <= 100 < delays[2] < delays[3] <= 800
    assert isinstance(host.errors[0].error.__cause__, ConnectionRefusedError)  # type: ignore[union-attr]


@pytest.mark.parametrize("answers", [[], [CONNACK_3, SUBACK_3]])
@pytest.mark.usefixtures("impatient")
def test_a_silent_broker_is_left(monkeypatch: pytest.MonkeyPatch, answers: list[bytes]) -> None:
    monkeypatch.setattr(network, "_SILENCE_S", 0.3)
    monkeypatch.setattr(client, "KEEPALIVE_S", 10)
    with scripted(*answers) as port:
        error = first_error(port)
    assert isinstance(error.cause, TimeoutError)


@pytest.mark.parametrize(
    "options",
    [
        {"username": "spark", "password_file": "/nowhere/file"},
        {"tls_ca": "/nowhere/file"},
        {"tls_certificate": "/nowhere/file"},
    ],
)
def test_a_missing_file_is_named_and_tried_again(options: dict[str, str]) -> None:
    with scripted() as port:
        error = first_error(port, **options)
    assert isinstance(error.cause, FileNotFoundError)
    assert error.path == "/nowhere/file"
    assert "readable by its user" in str(error)


@pytest.mark.usefixtures("impatient")
def test_a_broker_without_tls_is_told_from_one_that_is_away() -> None:
    with scripted(b"this is not TLS") as port:
        assert "with TLS" in str(first_error(port, tls=True))


@pytest.mark.parametrize(
    ("options", "client_id"),
    [({}, b"penstock-stream-r0"), ({"client_id": "shop floor"}, b"shop floor-r0")],
)
@pytest.mark.usefixtures("impatient")
def test_the_client_id_holds_the_receivers_name(options: dict[str, str], client_id: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        mqtt = MqttReceiver("127.0.0.1", server.getsockname()[1], "t", **options)  # type: ignore[arg-type]
        with RecordingHost(expect_errors=True).run(mqtt):
            connection, _ = server.accept()
            with connection:
                assert bytes([0, len(client_id)]) + client_id in connection.recv(65_536)


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": ""},
        {"port": 0},
        {"port": "1883"},
        {"topics": []},
        {"topics": ["a/#/b"]},
        {"topics": "a/b#"},
        {"topics": "a/+b"},
        {"topics": ""},
        {"topics": "x" * 70_000},
        {"topics": "$share/g/a", "share_group": "g"},
        {"share_group": "a/b"},
        {"qos": 3},
        {"version": "3"},
        {"client_id": ""},
        {"password_file": "/secret"},
        {"tls_key": "/key"},
    ],
)
def test_bad_arguments_fail_at_construction(wrong: dict[str, Any]) -> None:
    arguments = {"host": "h", "port": 1883, "topics": ["a/+/b", "#"], **wrong}
    with pytest.raises(ConfigError):
        MqttReceiver(**arguments)


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "paho" else find(name)
    )
    with pytest.raises(ConfigError, match=r"pip install 'penstock-spark\[mqtt\]'"):
        MqttReceiver("h", topics="t")


def test_a_library_without_what_we_replace_in_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(paho.Client, "_packet_read")
    host = RecordingHost(expect_errors=True)
    with host.run(MqttReceiver("127.0.0.1", topics="t")):
        host.wait_until(lambda: bool(host.restarts))
    assert isinstance(host.restarts[0].error, ConfigError)
    assert "_packet_read" in str(host.restarts[0].error)
