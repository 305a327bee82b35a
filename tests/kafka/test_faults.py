"""A broker that pauses, and topics that lose their leader; test_kills.py kills and restarts one."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec
from pyspark import SparkContext

from penstock.errors import KafkaDataLossError
from penstock.kafka import cut_off, topics
from penstock.kafka.topics import Topics
from tests.kafka.broker import Broker
from tests.kafka.program import Program
from tests.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"faults-{next(_number)}")


def test_a_broker_that_pauses(
    program: Program,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = program.broker
    broker.produce(topic, [b"a"])
    stepper = program.start([topic])
    stepper.step()
    broker.pause()
    try:
        with monkeypatch.context() as impatient:
            impatient.setattr(topics, "_TIMEOUT_S", 0.5)
            stepper.step()  # without records
    finally:
        broker.resume()
    assert "No new Kafka records are planned until the brokers answer" in caplog.text
    broker.produce(topic, [b"b"])
    stepper.step()
    assert [batch for batch in program.seen if batch] == [[b"a"], [b"b"]]


@pytest.mark.parametrize("asks", ["earliest", "latest"])
@pytest.mark.parametrize("on_data_loss", ["fail", "earliest", "latest"])
def test_an_answer_without_an_offset_is_no_loss(
    program: Program,
    topic: str,
    on_data_loss: str,
    asks: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As librdkafka gave it while the broker started again."""
    program.broker.produce(topic, [b"a"])
    stepper = program.start([topic], on_data_loss=on_data_loss)
    stepper.step()
    program.broker.produce(topic, [b"b"])
    with monkeypatch.context() as starting:
        starting.setattr(Topics, "_ask", unanswered(Topics._ask, getattr(OffsetSpec, asks)()))
        stepper.step()
    assert "No new Kafka records are planned until the brokers answer" in caplog.text
    assert "OFFSET_NOT_AVAILABLE" in caplog.text
    stepper.step()
    assert [batch for batch in program.seen if batch] == [[b"a"], [b"b"]]
    assert program.losses() == []


@pytest.mark.parametrize("on_data_loss", ["fail", "earliest", "latest"])
def test_an_end_that_goes_back_for_a_moment_is_no_loss(
    program: Program, topic: str, on_data_loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.broker.produce(topic, [b"a", b"b"])
    stepper = program.start([topic], on_data_loss=on_data_loss)
    stepper.step()
    program.broker.produce(topic, [b"c"])
    with monkeypatch.context() as behind:
        ask = Topics._ask
        early = unanswered(ask, OffsetSpec.latest(), 1)
        answers = chain([early] * 3, repeat(ask))
        behind.setattr(Topics, "_ask", lambda *asked: next(answers)(*asked))
        stepper.step()
        assert next(answers) is ask  # they were asked again
    stepper.step()
    assert [batch for batch in program.seen if batch] == [[b"a", b"b"], [b"c"]]
    assert program.losses() == []


def test_an_end_that_stays_before_what_was_read_is_a_loss(
    program: Program, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.broker.produce(topic, [b"a", b"b"])
    stepper = program.start([topic])
    stepper.step()
    monkeypatch.setattr(cut_off, "SURE_S", 0.0)
    monkeypatch.setattr(Topics, "_ask", unanswered(Topics._ask, OffsetSpec.latest(), 1))
    with pytest.raises(KafkaDataLossError, match=r"ends at 1, before 2.*it was cut off"):
        stepper.step()


@pytest.mark.parametrize("on_data_loss", ["fail", "earliest", "latest"])
def test_a_position_within_an_open_transaction_waits_for_its_end(
    program: Program, topic: str, on_data_loss: str
) -> None:
    """Of a program that read what is not committed before."""
    producer = Producer({**program.broker.conf, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(WAIT_S)
    program.broker.produce(topic, [b"behind"])
    program.start([topic], conf={"isolation.level": "read_uncommitted"}).step()
    stepper = program.start([topic], on_data_loss=on_data_loss)
    stepper.step()
    producer.commit_transaction(WAIT_S)
    program.broker.produce(topic, [b"after"])
    # The broker ends the transaction in the topic some time after it has answered the commit.
    assert eventually(lambda: (stepper.step(), [b"after"] in program.seen)[1])
    assert [batch for batch in program.seen if batch] == [[b"behind", b"open"], [b"after"]]
    assert program.losses() == []


def unanswered(ask: Any, spec: OffsetSpec, offset: int = -1001) -> Any:
    """Return a way to ask for offsets in which one kind has another answer: none, and no error."""

    def asked(self: Topics, partitions: Any, wanted: OffsetSpec, *isolation: Any) -> Any:
        answers = ask(self, partitions, wanted, *isolation)
        if wanted is spec:
            for each in answers:
                answers[each] = Future()
                answers[each].set_result(ListOffsetsResultInfo(offset, -1, -1))
        return answers

    return asked


def test_a_program_stops_beside_a_broker_that_hangs(
    program: Program, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    program.broker.produce(topic, [b"a"])
    program.start([topic]).step()
    program.broker.pause()
    try:
        stops = threading.Thread(target=program.stop, daemon=True)
        stops.start()
        assert eventually(lambda: not stops.is_alive())
    finally:
        program.broker.resume()
    assert "no broker took the last offsets of" in caplog.text


@pytest.mark.soak  # two brokers: 40 s on a busy machine
def test_the_leader_of_a_partition_is_killed(sc: SparkContext, tmp_path: Path) -> None:
    first = Broker(tmp_path / "first")
    second = Broker(tmp_path / "second", joins=first)
    program = Program(sc, first, tmp_path / "checkpoint")
    both = {"bootstrap.servers": f"{first.address},{second.address}"}
    with first.running(), second.running():
        try:
            topic = first.create_topic("led-by-the-second", replicas=[[2, 1]])
            first.produce(topic, [b"a"])
            stepper = program.start([topic], conf=both)
            stepper.step()
            second.kill()
            first.produce(topic, [b"b"])  # when the first leads
            stepper.step(3)  # the first of them may ask the broker that is gone
            assert [batch for batch in program.seen if batch] == [[b"a"], [b"b"]]
        finally:
            program.stop()
