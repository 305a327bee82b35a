"""A broker that pauses, and topics that lose their leader; test_kills.py kills and restarts one."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.kafka.broker import Broker
from tests.kafka.program import Program
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"faults-{next(_number)}")


def test_a_broker_that_pauses(
    program: Program, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = program.broker
    broker.produce(topic, [b"a"])
    stepper = program.start([topic])
    stepper.step()
    broker.pause()
    try:
        stepper.step()  # in three seconds, without records
    finally:
        broker.resume()
    assert "No new Kafka records are planned until the brokers answer" in caplog.text
    broker.produce(topic, [b"b"])
    stepper.step()
    assert [batch for batch in program.seen if batch] == [[b"a"], [b"b"]]


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
