"""A broker that pauses, restarts, or whose topics lose their leader."""

from __future__ import annotations

from itertools import count

import pytest

from tests.kafka.broker import Broker
from tests.kafka.program import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"faults-{next(_number)}")


def test_a_broker_that_pauses_and_restarts(
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
    broker.kill()
    broker.start()
    broker.produce(topic, [b"c"])
    stepper.step()
    assert [batch for batch in program.seen if batch] == [[b"a"], [b"b"], [b"c"]]
