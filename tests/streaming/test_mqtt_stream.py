"""mqttStream on Spark: messages of a real broker as records and as rows, acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.errors import ConfigError
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.receivers.mqtt_broker import Broker, needs_mosquitto, publisher
from tests.streaming.runs import Runs
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, needs_mosquitto]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path)
    running.start()
    yield running
    running.kill()


def run(runs: Runs, broker: Broker, message: str, wanted: int) -> list[Any]:
    """Start a program on the broker's folder, publish, and return the rows of its batch."""
    rows: list[Any] = []
    dicts: list[Any] = []

    def define(ssc: StreamingContext) -> None:
        stream = ssc.mqttStream("127.0.0.1", broker.port, ["plant/#"], name="plant", version="5")
        stream.foreachBatch(
            lambda df, batch_id: rows.extend(df.selectExpr("topic", "payload").collect())
        )
        stream.foreachRDD(lambda time, rdd: dicts.extend(rdd.map(lambda m: m["payload"]).collect()))

    suback, puback = "Sending SUBACK to penstock-plant-r0", "PUBACK from penstock-plant-r0"
    subscribed, acked = broker.log().count(suback), broker.log().count(puback)
    with runs.running_program(define) as stepper:
        assert eventually(lambda: broker.log().count(suback) > subscribed)
        with publisher(broker) as source:
            source.publish([message])
        assert eventually(lambda: broker.log().count(puback) >= acked + wanted)
        stepper.step()
    assert sorted(dicts) == sorted(bytes(row.payload) for row in rows)
    # Spark reads larger blocks first, so rows of several blocks come in any order.
    return sorted((row.topic, bytes(row.payload)) for row in rows)


def test_each_message_is_in_one_batch_also_after_a_restart(runs: Runs, broker: Broker) -> None:
    assert run(runs, broker, "1", wanted=1) == [("plant/a", b"1")]
    with publisher(broker) as source:
        source.publish(["2"])  # kept for the session while no program runs
    assert run(runs, broker, "3", wanted=2) == [("plant/a", b"2"), ("plant/a", b"3")]


def test_receivers_of_a_group_share_the_messages_out(
    sc: SparkContext, broker: Broker, clock: ManualClock, tmp_path: Path
) -> None:
    payloads: list[str] = []
    ssc = StreamingContext(sc, 1, clock=clock)
    with pytest.raises(ConfigError, match="each get every message"):
        ssc.mqttStream("127.0.0.1", broker.port, "plant/#", receivers=2)
    stream = ssc.mqttStream(
        "127.0.0.1", broker.port, "plant/#", name="plant", share_group="g", receivers=2
    )
    stream.foreachRDD(
        lambda time, rdd: payloads.extend(rdd.map(lambda m: m["payload"].decode()).collect())
    )
    stepper = Stepper(ssc, clock)
    sent = [str(n) for n in range(40)]
    ssc.start()
    try:
        for place in range(2):
            subscribed = f"Sending SUBACK to penstock-plant-r{place}"
            assert eventually(partial(broker.has_logged, subscribed))
        with publisher(broker) as source:
            source.publish(sent)
        assert eventually(lambda: broker.log().count("PUBACK from penstock-plant-r") >= len(sent))
        stepper.step()
    finally:
        ssc.stop(stopSparkContext=False)
    assert sorted(payloads) == sorted(sent)
    assert all(broker.has_logged(f"PUBACK from penstock-plant-r{place}") for place in range(2))
