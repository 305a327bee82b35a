"""Records that are gone before they are read: retention, and topics that are created again."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

import pytest
from pyspark import RDD
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import BatchFailedError, ConfigError, KafkaDataLossError, KafkaError
from penstock.kafka.offsets import from_json, ids_in
from penstock.streaming import DStream
from tests.kafka.broker import Broker
from tests.kafka.program import Program
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"loss-{next(_number)}")


def values(first: int, last: int) -> list[bytes]:
    return [b"%03d" % n for n in range(first, last)]


@pytest.mark.parametrize(
    ("policy", "batches", "lost"),
    [
        ("earliest", [values(0, 2), values(5, 8), []], (2, 5)),
        ("latest", [values(0, 2), [], values(8, 9)], (2, 8)),
    ],
)
def test_the_stream_continues_after_what_retention_deleted(
    program: Program, topic: str, policy: Any, batches: list[list[bytes]], lost: tuple[int, int]
) -> None:
    program.broker.produce(topic, values(0, 2))
    program.start([topic], on_data_loss=policy).step()
    program.stop()
    program.broker.produce(topic, values(2, 8))
    program.broker.delete_records(topic, before=5)
    stepper = program.start([topic], on_data_loss=policy)
    stepper.step()
    if policy == "latest":
        program.broker.produce(topic, values(8, 9))
    stepper.step()
    assert program.seen == batches
    assert program.losses() == [(f"{topic}-0", *lost)]
    told = CliRunner().invoke(app, ["journal", "losses", str(program.location)]).output
    assert f"{topic}-0" in told
    assert "were deleted before they were read" in told
    assert CliRunner().invoke(app, ["checkpoint", "validate", str(program.location)]).exit_code == 0


def test_a_loss_counts_for_no_limit(program: Program, topic: str) -> None:
    setting = "spark.streaming.kafka.maxRatePerPartition"
    program.broker.produce(topic, values(0, 9))
    program.start([topic], starting={topic: {0: 0}}, on_data_loss="earliest")
    program.stop()  # before any batch
    program.broker.delete_records(topic, before=5)
    program.sc._jsc.sc().conf().set(setting, "2")
    try:
        (batch, _) = program.start([topic], on_data_loss="earliest").step(2)
    finally:
        program.sc._jsc.sc().conf().remove(setting)
    assert program.seen == [values(5, 7), values(7, 9)]
    assert batch.num_records == 2


def test_a_task_finds_the_loss(program: Program, topic: str) -> None:
    """Planned, and deleted before it is read: of what is left each record is read once."""
    program.broker.produce(topic, values(0, 9))

    def read_late(rdd: RDD[Any]) -> None:
        program.broker.delete_records(topic, before=4)
        program.note(rdd)
        program.note(rdd)  # found again, and not noted again

    program.start([topic], on_data_loss="earliest", define=lambda s: s.foreachRDD(read_late)).step()
    assert program.seen == [values(4, 9), values(4, 9)]
    assert program.losses() == [(f"{topic}-0", 0, 4)]


def test_a_task_fails_when_a_loss_ends_the_program(program: Program, topic: str) -> None:
    program.broker.produce(topic, values(0, 9))

    def read_late(rdd: RDD[Any]) -> None:
        program.broker.delete_records(topic, before=4)
        program.note(rdd)

    stepper = program.start([topic], define=lambda stream: stream.foreachRDD(read_late))
    with pytest.raises(BatchFailedError, match=rf"offset 0 of {topic}/0 is not.*on_data_loss"):
        stepper.step()


def test_a_batch_that_runs_again_leaves_out_what_is_lost(program: Program, topic: str) -> None:
    program.broker.produce(topic, values(0, 6))
    failing = program.start([topic], on_data_loss="earliest", define=fail)
    with pytest.raises(BatchFailedError, match="not yet"):
        failing.step()
    program.stop()
    program.broker.delete_records(topic, before=4)
    program.start([topic], on_data_loss="earliest").step(3)
    assert program.seen[0] == values(4, 6)
    assert program.losses() == [(f"{topic}-0", 0, 4)]


def fail(stream: DStream) -> None:
    def raise_error(rdd: RDD[Any]) -> None:
        raise RuntimeError("not yet")

    stream.foreachRDD(raise_error)


def create_again(broker: Broker, topic: str, records: list[bytes]) -> None:
    broker.delete_topic(topic)
    assert eventually(lambda: not broker.has_topic(topic))
    broker.create_topic(topic)
    broker.produce(topic, records)


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_a_topic_that_is_created_again_stops_the_program(
    program: Program, topic: str, policy: Any
) -> None:
    """The new topic is longer than the old one, so its offsets alone would not tell."""
    program.broker.produce(topic, values(0, 4))
    stepper = program.start([topic], on_data_loss=policy)
    stepper.step()
    before = ids_in(program.offsets(0)[0])[topic]
    create_again(program.broker, topic, values(100, 109))
    what = rf"topic {topic} was deleted and created again: .* id {re.escape(before)}, and it has id"
    for _ in range(2):  # while it runs, and at each start after it
        with pytest.raises(KafkaDataLossError, match=what):
            stepper.step()
        program.stop()
        stepper = program.start([topic], on_data_loss=policy)
    program.stop()
    rewind = ["checkpoint", "rewind", str(program.location), "--apply", "--to-offsets"]
    offsets = json.dumps({"0": {topic: {"0": 0}}})
    assert CliRunner().invoke(app, [*rewind, offsets]).exit_code == 0
    program.start([topic], on_data_loss=policy).step(2)
    assert [batch for batch in program.seen if batch] == [values(0, 4), values(100, 109)]
    assert ids_in(program.offsets(2)[0])[topic] != before
    assert CliRunner().invoke(app, ["checkpoint", "validate", str(program.location)]).exit_code == 0


def test_a_planned_batch_of_a_topic_that_was_created_again_is_not_read(
    program: Program, topic: str
) -> None:
    program.broker.produce(topic, values(0, 6))
    with pytest.raises(BatchFailedError, match="not yet"):
        program.start([topic], define=fail).step()
    program.stop()
    create_again(program.broker, topic, values(100, 109))
    with pytest.raises(BatchFailedError, match="was deleted and created again"):
        program.start([topic])
    assert program.seen == []


def test_a_named_topic_that_is_deleted_leaves_the_others(
    program: Program, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = program.broker.create_topic(f"{topic}-other")
    program.broker.produce(topic, values(0, 2))
    program.broker.produce(other, values(10, 12))
    stepper = program.start([topic, other])
    stepper.step()
    program.broker.delete_topic(other)
    assert eventually(lambda: not program.broker.has_topic(other))
    program.broker.produce(topic, values(2, 3))
    stepper.step()
    assert program.seen[1:] == [values(2, 3)]
    assert from_json(program.offsets(1)[0]) == {f"{topic}/0": 3, f"{other}/0": 2}
    assert caplog.text.count(f"Topic {other} does not exist any more") == 1
    program.stop()
    with pytest.raises(KafkaError, match=f"topic.*{other}"):
        program.start([topic, other])
    program.broker.produce(topic, values(3, 4))
    program.start([topic]).step()
    assert program.seen[2:] == [values(3, 4)]
    shown = CliRunner().invoke(
        app, ["kafka", "lag", str(program.location), "--brokers", program.broker.address]
    )
    assert "not in Kafka" in shown.output
    assert "lag in all: 0" in shown.output


def test_a_policy_that_does_not_exist(program: Program) -> None:
    with pytest.raises(ConfigError, match=r"on_data_loss=.none. is not possible.*fail, earliest"):
        program.start(["topic"], on_data_loss="none")
