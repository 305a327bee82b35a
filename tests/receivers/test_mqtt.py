"""MqttReceiver against a real broker: deliveries, sessions, restarts, back pressure, security."""

from __future__ import annotations

import pickle
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock.errors import FencedError, WriterBrokenError
from penstock.receivers import MqttReceiver
from penstock.receivers.mqtt import client, network, receiver
from penstock.testing import RecordingHost
from tests.free_port import free_port
from tests.receivers.mqtt_broker import Broker, needs_mosquitto, publisher
from tests.waiting import eventually

pytestmark = needs_mosquitto

both_versions = pytest.mark.parametrize("version", ["3.1.1", "5"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    running.start()
    yield running
    running.kill()


def subscriber(broker: Broker, **options: Any) -> MqttReceiver:
    return MqttReceiver("127.0.0.1", broker.port, "plant/#", **options)


def wait_subscribed(broker: Broker, times: int = 1) -> None:
    assert eventually(lambda: broker.log().count("Sending SUBACK to") >= times)


def make_session(broker: Broker, *receivers: MqttReceiver) -> None:
    """Subscribe once, so that the broker keeps what is published from then on."""
    for each in receivers:
        times = broker.log().count("Sending SUBACK to")
        with RecordingHost().run(each):
            wait_subscribed(broker, times + 1)


def payloads(host: RecordingHost) -> list[bytes]:
    return [record["payload"] for record in host.records]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


# -- what is subscribed to --


@both_versions
@pytest.mark.parametrize("count", [8, 9, 20])
def test_filters_are_subscribed_to_eight_in_a_packet(
    broker: Broker, version: str, count: int
) -> None:
    topics = [f"plant/{number}/state" for number in range(count)]
    host = RecordingHost()
    with host.run(MqttReceiver("127.0.0.1", broker.port, topics, version=version)):
        wait_subscribed(broker, -(-count // 8))
        with publisher(broker) as client:
            for topic in topics:
                client.publish([topic], topic=topic)
        host.wait_until(lambda: len(host.records) == count)
    assert payloads(host) == [topic.encode() for topic in topics]
    packets = broker.log().split("Received SUBSCRIBE from")[1:]
    sizes = [packet.count("(QoS 1)") for packet in packets]
    assert sizes == [8] * (count // 8) + [count % 8] * (count % 8 > 0)


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_stored_once_though_filters_overlap(
    broker: Broker, version: str, qos: int
) -> None:
    def receiver(*topics: str) -> MqttReceiver:
        return MqttReceiver("127.0.0.1", broker.port, topics, qos=qos, version=version)

    make_session(broker, receiver("plant/+/state"))  # as an earlier program may have left it
    host = RecordingHost()
    with host.run(receiver("plant/+/state", "plant/#", "plant/7/state", "plant/#")):
        assert eventually(lambda: broker.has_logged("Sending UNSUBACK to"))
        with publisher(broker) as client:
            client.publish(numbered(10), qos=qos, topic="plant/7/state")
        host.wait_until(lambda: len(host.records) >= 10)
    assert payloads(host) == numbered(10)


@pytest.mark.parametrize(
    ("topics", "warnings"), [(["plant/#", "plant/+"], 0), (["plant/+/state", "plant/7/#"], 1)]
)
def test_filters_that_overlap_in_part_are_warned_of(
    broker: Broker, topics: list[str], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    with RecordingHost().run(MqttReceiver("127.0.0.1", broker.port, topics)):
        wait_subscribed(broker)
    assert caplog.text.count("overlap") == warnings


# -- what is stored --


@both_versions
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_come_in_order_with_their_facts(broker: Broker, version: str, qos: int) -> None:
    host = RecordingHost()
    before_ms = time.time_ns() // 1_000_000
    with host.run(subscriber(broker, version=version, qos=qos)), publisher(broker) as source:
        wait_subscribed(broker)
        source.publish(numbered(300), qos=qos)
        host.wait_for_records(300)
    assert payloads(host) == numbered(300)
    first = host.records[0]
    assert before_ms <= first.pop("received_ms") <= time.time_ns() // 1_000_000
    assert first == {"topic": "plant/a", "payload": b"0", "qos": qos, "retained": False}


@pytest.mark.parametrize(("version", "starts_with_it"), [("3.1.1", 2), ("5", 1)])
def test_retained_messages_are_marked_and_empty_payloads_kept(
    broker: Broker, version: str, starts_with_it: int
) -> None:
    mqtt = subscriber(broker, version=version)
    hosts = [RecordingHost(), RecordingHost()]
    with publisher(broker) as source:
        source.publish([b"kept \xff\x00"], topic="plant/ü", retain=True)
        for times, host in enumerate(hosts, start=1):
            with host.run(mqtt):
                wait_subscribed(broker, times)
                source.publish([b""])
                host.wait_until(lambda host=host: b"" in payloads(host))  # type: ignore[misc]
    kept = {"topic": "plant/ü", "payload": b"kept \xff\x00", "qos": 1, "retained": True}
    first = [{**record, "received_ms": 0} for host in hosts for record in host.records]
    assert first.count({**kept, "received_ms": 0}) == starts_with_it
    assert len(first) == starts_with_it + 2


@both_versions
def test_a_large_message_comes_whole(broker: Broker, version: str) -> None:
    large = bytes(range(256)) * 20_000
    host = RecordingHost()
    with host.run(subscriber(broker, version=version)), publisher(broker) as source:
        wait_subscribed(broker)
        source.publish([b"before", large, b"after"])
        host.wait_for_records(3)
    assert payloads(host) == [b"before", large, b"after"]


def test_what_arrives_together_is_stored_together(broker: Broker) -> None:
    mqtt = subscriber(broker)
    make_session(broker, mqtt)
    with publisher(broker) as source:
        source.publish(numbered(2_000))
    host = RecordingHost()
    with host.run(mqtt):
        host.wait_for_records(2_000)
    assert payloads(host) == numbered(2_000)
    assert len(host.stores) < 500


# -- acknowledgements and sessions --


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_what_did_not_become_durable_is_delivered_again(
    broker: Broker, version: str, qos: int
) -> None:
    mqtt = subscriber(broker, version=version, qos=qos)
    make_session(broker, mqtt)
    broken = RecordingHost()
    broken.block_stores()
    broken.fail_stores(WriterBrokenError("the disk is full"))
    with publisher(broker) as source, broken.run(mqtt):
        source.publish(numbered(10), qos=qos)
        assert eventually(lambda: broker.log().count("Sending PUBLISH to penstock-stream-r0") >= 10)
    assert not any(f"{ack} from penstock" in broker.log() for ack in ("PUBACK", "PUBREC"))

    host = RecordingHost()
    with host.run(mqtt):
        host.wait_for_records(10)
    assert payloads(host) == numbered(10)


@both_versions
@pytest.mark.parametrize("qos", [1, 2])
def test_a_clean_stop_leaves_nothing_to_deliver_again(
    broker: Broker, version: str, qos: int
) -> None:
    mqtt = subscriber(broker, version=version, qos=qos)
    make_session(broker, mqtt)
    first, second = RecordingHost(), RecordingHost()
    with publisher(broker) as source:
        with first.run(mqtt):
            source.publish(numbered(100), qos=qos)
            first.wait_for_records(100)
        source.publish(numbered(100, 100), qos=qos)  # while nobody is connected
        with second.run(mqtt):
            second.wait_for_records(100)
    assert payloads(first) + payloads(second) == numbered(200)


@pytest.mark.parametrize(("qos", "version"), [(1, "3.1.1"), (2, "5")])
def test_a_stop_amid_a_backlog_brings_nothing_twice(tmp_path: Path, qos: int, version: str) -> None:
    broker = Broker(tmp_path, "allow_anonymous true", "max_inflight_messages 1000")
    broker.start()
    mqtt = subscriber(broker, version=version, qos=qos)
    stored: list[bytes] = []
    try:
        make_session(broker, mqtt)
        with publisher(broker) as source:
            source.publish([b"%d" % i + bytes(2_000) for i in range(3_000)], qos=qos)
        while len(stored) < 3_000:
            host = RecordingHost()
            with host.run(mqtt):
                host.wait_for_records(min(300, 3_000 - len(stored)))
            stored += payloads(host)
    finally:
        broker.kill()
    assert sorted(int(payload.rstrip(b"\0")) for payload in stored) == list(range(3_000))


def test_a_fenced_store_ends_the_thread_without_a_restart(broker: Broker) -> None:
    host = RecordingHost()
    host.fail_stores(FencedError("sealed by a successor"))
    with publisher(broker) as source, host.run(subscriber(broker)):
        wait_subscribed(broker)
        source.publish([b"1"])
        assert eventually(lambda: "Client penstock-stream-r0 disconnected" in broker.log())
    assert (host.records, host.restarts, host.errors) == ([], [], [])
    assert "PUBACK from penstock" not in broker.log()


@both_versions
def test_a_broker_that_restarts_goes_on_where_it_was(broker: Broker, version: str) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(subscriber(broker, version=version, qos=2)):
        wait_subscribed(broker)
        with publisher(broker) as source:
            source.publish(numbered(50), qos=2)
        host.wait_for_records(50)
        # mosquitto 2.0.11 sends what is in flight again, also after its PUBREL: docs/mqtt.md.
        assert eventually(lambda: broker.log().count("Received PUBCOMP from penstock") == 50)
        broker.stop()
        host.wait_until(lambda: len(host.errors) >= 2)  # lost, and then refused
        broker.start()
        with publisher(broker) as source:
            source.publish(numbered(50, 50), qos=2)
        host.wait_for_records(100)
    assert payloads(host) == numbered(100)
    assert host.restarts == []
    assert not any("lost this client's session" in report.message for report in host.errors)
    assert "next attempt in" in host.errors[0].message


@both_versions
def test_a_session_that_the_broker_lost_is_reported_and_made_again(
    broker: Broker, version: str
) -> None:
    host = RecordingHost(expect_errors=True)
    with host.run(subscriber(broker, version=version)):
        wait_subscribed(broker)
        broker.kill()  # it had written nothing
        broker.start()
        wait_subscribed(broker, 2)
        with publisher(broker) as source:
            source.publish([b"after"])
        host.wait_for_records(1)
    assert any("lost this client's session" in report.message for report in host.errors)


def test_a_cut_connection_brings_nothing_twice(broker: Broker) -> None:
    host = RecordingHost(expect_errors=True)
    mqtt = subscriber(broker)
    with host.run(mqtt), publisher(broker) as source:
        wait_subscribed(broker)
        host.block_stores()
        source.publish(numbered(15))  # less than the broker's window
        sent = "Sending PUBLISH to penstock-stream-r0"
        assert eventually(lambda: broker.log().count(sent) >= 15)
        broker.stop()
        broker.start()
        assert eventually(lambda: broker.log().count(sent) >= 30)  # all of them again
        host.unblock_stores()
        host.wait_for_records(15)
        assert eventually(lambda: broker.log().count("PUBACK from penstock-stream-r0") >= 15)
    assert payloads(host) == numbered(15)


@both_versions
def test_a_share_group_divides_the_messages(broker: Broker, version: str) -> None:
    hosts = [RecordingHost(), RecordingHost()]
    mqtt = [
        subscriber(broker, version=version, share_group="g", client_id=f"member-{i}")
        for i in range(2)
    ]
    with hosts[0].run(mqtt[0]), hosts[1].run(mqtt[1]), publisher(broker) as source:
        wait_subscribed(broker, 2)
        source.publish(numbered(200))
        assert eventually(lambda: sum(len(host.records) for host in hosts) >= 200)
    shares = [payloads(host) for host in hosts]
    assert sorted(shares[0] + shares[1], key=int) == numbered(200)
    assert all(shares)


@both_versions
def test_a_second_client_of_the_same_id_is_named(broker: Broker, version: str) -> None:
    host = RecordingHost(expect_errors=True)
    other = RecordingHost(expect_errors=True)
    with host.run(subscriber(broker, version=version)):
        wait_subscribed(broker)
        with other.run(subscriber(broker, version=version)):
            host.wait_until(lambda: bool(host.errors))
    # mosquitto gives no reason; tests/receivers/test_mqtt_errors.py has a broker that does.
    error = str(host.errors[0].error)
    assert "client_id=penstock-stream-r0" in error
    assert "no other client has the same id" in error


# -- back pressure --


@pytest.mark.storm  # a keepalive of a second: a machine that stalls ends the connection
@pytest.mark.parametrize(("version", "buffer_bytes"), [("3.1.1", 64 << 20), ("5", 1)])
def test_a_blocked_store_keeps_the_connection_and_drops_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: str, buffer_bytes: int
) -> None:
    monkeypatch.setattr(client, "KEEPALIVE_S", 1)
    monkeypatch.setattr(network, "_SILENCE_S", 1.5)
    monkeypatch.setattr(receiver, "_BUFFER_BYTES", buffer_bytes)  # with 1, reading stops
    host = RecordingHost()
    host.block_stores()
    with host.run(subscriber(broker, version=version)), publisher(broker) as source:
        wait_subscribed(broker)
        source.publish(numbered(100))
        # The broker would end the connection after 1.5 s without a sign of life.
        assert eventually(lambda: broker.log().count("PINGREQ from penstock-stream-r0") >= 5)
        assert host.records == []
        host.unblock_stores()
        host.wait_for_records(100)
    assert payloads(host) == numbered(100)


# -- security --


def test_login_with_a_password_from_a_file(tmp_path: Path) -> None:
    logins = tmp_path / "logins"
    subprocess.run(["mosquitto_passwd", "-b", "-c", logins, "spark", "s3cret word"], check=True)
    broker = Broker(tmp_path, "allow_anonymous false", f"password_file {logins}")
    broker.start()
    secret = tmp_path / "secret"
    secret.write_text("wrong\n")
    mqtt = subscriber(broker, username="spark", password_file=str(secret))
    host = RecordingHost(expect_errors=True)
    try:
        with host.run(mqtt):
            host.wait_until(lambda: bool(host.errors))
            secret.write_text("s3cret word\n")  # read again for each connection
            wait_subscribed(broker)
    finally:
        broker.kill()
    error = str(host.errors[0].error)
    assert "refused the connection: Not authorized" in error
    assert "password_file" in error
    assert b"s3cret" not in pickle.dumps(mqtt)
    assert not any("wrong" in str(report) for report in host.errors)


def test_tls_with_both_certificates(tmp_path: Path) -> None:
    plain = free_port()  # for the publisher
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server, own = ca.issue_cert("127.0.0.1"), ca.issue_cert("client")
    server.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "own.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "own.key"))
    broker = Broker(
        tmp_path,
        "allow_anonymous true",
        f"cafile {tmp_path / 'ca.pem'}",
        f"certfile {tmp_path / 'server.pem'}",
        f"keyfile {tmp_path / 'server.pem'}",
        "require_certificate true",
        f"listener {plain} 127.0.0.1",
    )
    broker.start()
    try:
        host = RecordingHost()
        with host.run(
            subscriber(
                broker,
                tls_ca=str(tmp_path / "ca.pem"),
                tls_certificate=str(tmp_path / "own.pem"),
                tls_key=str(tmp_path / "own.key"),
            )
        ):
            wait_subscribed(broker)
            with publisher(broker, plain) as source:
                source.publish([payload + bytes(50_000) for payload in numbered(500)])
            host.wait_for_records(500)
        assert [p.rstrip(b"\0") for p in payloads(host)] == numbered(500)

        untrusting = RecordingHost(expect_errors=True)
        with untrusting.run(subscriber(broker, tls=True)):
            untrusting.wait_until(lambda: bool(untrusting.errors))
    finally:
        broker.kill()
    assert isinstance(untrusting.errors[0].error.__cause__, ssl.SSLCertVerificationError)  # type: ignore[union-attr]


def test_pickles_as_configured_after_use(broker: Broker) -> None:
    mqtt = subscriber(broker)
    make_session(broker, mqtt)
    assert repr(pickle.loads(pickle.dumps(mqtt))) == repr(mqtt)
