"""A broker that pauses, restarts, or whose topics lose their leader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.kafka.broker import LIBRARIES, Broker
from tests.kafka.program import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that no other test needs alive."""
    if LIBRARIES is None:
        pytest.skip("NOT PROVED: there are no libraries of a Kafka broker (scripts/kafka.sh)")
    broker = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@pytest.fixture
def topic(own_broker: Broker) -> str:
    return own_broker.create_topic(f"faults-{next(_number)}")


@pytest.fixture
def own_program(sc: SparkContext, own_broker: Broker, tmp_path: Path) -> Iterator[Program]:
    program = Program(sc, own_broker, tmp_path / "checkpoint")
    yield program
    program.stop()


def test_a_broker_that_pauses_and_restarts(
    own_program: Program, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = own_program.broker
    broker.produce(topic, [b"a"])
    stepper = own_program.start([topic])
    stepper.step()
    broker.pause()
    try:
        stepper.step()  # in three seconds, without records
    finally:
        broker.resume()
    assert "No new Kafka records are planned until the brokers answer" in caplog.text
    broker.produce(topic, [b"b"])
    stepper.step()
    broker.kill()
    broker.start()
    broker.produce(topic, [b"c"])
    stepper.step()
    assert [batch for batch in own_program.seen if batch] == [[b"a"], [b"b"], [b"c"]]
