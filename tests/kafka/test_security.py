"""TLS and SCRAM against a real broker; secrets are in nothing that is written."""

from __future__ import annotations

import logging
from itertools import count
from pathlib import Path

import pytest
import trustme

from penstock.errors import KafkaError
from penstock.kafka import KafkaRange, reader
from penstock.kafka.reader import read_records
from penstock.kafka.topics import Topics
from penstock.streaming import DStream
from tests.kafka.broker import PASSWORD, Broker
from tests.kafka.program import Program

pytestmark = pytest.mark.slow
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"secure-{next(_number)}")


@pytest.mark.spark
@pytest.mark.parametrize("recover", ["program", "graph"])
def test_a_program_over_tls_and_scram(
    program: Program, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, recover: str
) -> None:
    caplog.set_level(logging.DEBUG)
    program.broker.produce(topic, [b"a"])
    conf = program.broker.secure_conf
    if recover == "graph":
        (tmp_path / "password").write_text(f"{conf.pop('sasl.password')}\n")
        conf["sasl.password.file"] = str(tmp_path / "password")
    program.start([topic], conf=conf, recover=recover, define=pprint).step()
    program.stop()
    assert program.offsets(0)[0][topic] == {"0": 1}
    files = [path for path in program.location.rglob("*") if path.is_file()]
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert PASSWORD not in caplog.text


def pprint(stream: DStream) -> None:
    stream.pprint()


def test_a_wrong_password_is_told_without_it(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {**broker.secure_conf, "sasl.password": "wrong-word"}
    with pytest.raises(KafkaError, match=r"check sasl\.mechanism, sasl\.username") as plan:
        Topics(wrong, [topic]).scan()
    monkeypatch.setattr(reader, "PATIENCE_S", 20.0)
    with pytest.raises(KafkaError, match=r"check sasl\.mechanism, sasl\.username") as read:
        list(read_records(wrong, [KafkaRange(topic, 0, 0, 1)]))
    assert "wrong-word" not in f"{plan.value}{read.value}"


def test_a_broker_with_a_certificate_of_another_authority(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    wrong = {**broker.secure_conf, "ssl.ca.location": str(tmp_path / "other.pem")}
    with pytest.raises(KafkaError, match=r"certificate verify failed.*check security\.protocol"):
        Topics(wrong, [topic]).scan()
