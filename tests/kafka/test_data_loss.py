"""Records that are gone before they are read: retention, and topics that are created anew."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from pyspark import RDD
from typer.testing import CliRunner, Result

from penstock.checkpoint.tools import apply_plan, plan_undo
from penstock.cli.main import app
from penstock.errors import BatchFailedError, ConfigError, KafkaDataLossError
from penstock.kafka.losses import LossLog, LostRange
from penstock.storage import attach_storage
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


@pytest.mark.parametrize("anew", [False, True])
def test_a_batch_that_runs_again_leaves_out_what_is_lost(
    program: Program, topic: str, anew: bool
) -> None:
    program.broker.produce(topic, values(0, 6))
    failing = program.start([topic], on_data_loss="earliest", define=fail)
    with pytest.raises(BatchFailedError, match="not yet"):
        failing.step()
    program.stop()
    if anew:
        create_anew(program.broker, topic, values(100, 109))
    else:
        program.broker.delete_records(topic, before=4)
    program.start([topic], on_data_loss="earliest").step(3)
    if anew:
        assert [batch for batch in program.seen if batch] == [values(100, 109)]
        assert program.losses() == [(f"{topic}-0", 0, 6), (f"{topic}-0", 6, 6)]
    else:
        assert program.seen[0] == values(4, 6)
        assert program.losses() == [(f"{topic}-0", 0, 4)]


def fail(stream: DStream) -> None:
    def raise_error(rdd: RDD[Any]) -> None:
        raise RuntimeError("not yet")

    stream.foreachRDD(raise_error)


def create_anew(broker: Broker, topic: str, records: list[bytes], partitions: int = 1) -> None:
    broker.delete_topic(topic)
    assert eventually(lambda: not broker.has_topic(topic))
    broker.create_topic(topic, partitions)
    broker.produce(topic, records)


@pytest.mark.parametrize(
    ("policy", "read", "next_offset"),
    [("earliest", values(100, 109), 9), ("latest", [], 9)],
)
def test_a_topic_that_is_created_anew_is_noticed(
    program: Program, topic: str, policy: Any, read: list[bytes], next_offset: int
) -> None:
    """The new topic is longer than the old one, so its offsets alone would not tell."""
    program.broker.produce(topic, values(0, 4))
    stepper = program.start([topic], on_data_loss=policy)
    stepper.step()
    create_anew(program.broker, topic, values(100, 109))
    stepper.step(2)
    program.broker.produce(topic, values(200, 201))
    program.start([topic], on_data_loss=policy).step()  # it is still known after a restart
    assert [batch for batch in program.seen if batch] == list(
        filter(None, [values(0, 4), read, values(200, 201)])
    )
    assert program.offsets(3) == [{f"{topic}@1": {"0": next_offset + 1}}]
    assert program.losses() == [(f"{topic}-0", 4, 4)]
    assert CliRunner().invoke(app, ["checkpoint", "validate", str(program.location)]).exit_code == 0


def test_a_topic_that_is_created_anew_ends_the_program(program: Program, topic: str) -> None:
    program.broker.produce(topic, values(0, 4))
    program.start([topic]).step()
    program.stop()
    create_anew(program.broker, topic, values(100, 109))
    for _ in range(2):  # and each start after it
        stepper = program.start([topic])
        with pytest.raises(KafkaDataLossError, match=f"topic {topic} was deleted and created anew"):
            stepper.step()
        program.stop()


def test_a_location_without_ids_takes_those_of_today(program: Program, topic: str) -> None:
    program.broker.produce(topic, values(0, 4))
    program.start([topic]).step()
    program.stop()
    for path in (program.location / "sources" / "numbers" / "topics").iterdir():
        path.unlink()
    program.broker.produce(topic, values(4, 6))
    program.start([topic]).step()
    assert program.seen == [values(0, 4), values(4, 6)]


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
    program.stop()
    program.broker.produce(topic, values(3, 4))
    program.start([topic, other]).step()  # it is known after a restart
    assert program.seen[1:] == [values(2, 3), values(3, 4)]
    assert program.offsets(2) == [{topic: {"0": 4}, other: {"0": 2}}]
    assert caplog.text.count(f"Topic {other} does not exist any more") == 2  # once in each run
    shown = CliRunner().invoke(
        app, ["kafka", "lag", str(program.location), "--brokers", program.broker.address]
    )
    assert "not in Kafka" in shown.output
    assert "lag in all: 0" in shown.output


def reset(program: Program, *options: str) -> Result:
    command = ["kafka", "reset", str(program.location), "--brokers", program.broker.address]
    return CliRunner().invoke(app, [*command, *options, "--apply"])


@pytest.mark.parametrize(
    ("offset", "read", "lost"), [(4, values(4, 10), []), (6, values(6, 10), [(4, 6)])]
)
def test_a_reset_has_records_read_that_were_passed_over(
    program: Program, topic: str, offset: int, read: list[bytes], lost: list[tuple[int, int]]
) -> None:
    program.broker.produce(topic, values(0, 4))
    program.start([topic]).step()
    program.broker.produce(topic, values(4, 10))
    losses = LossLog(attach_storage(str(program.location)), "numbers")
    losses.add([LostRange(f"{topic}/0", 4, 10, "records [0, 4) were deleted")])  # as "latest" does
    program.start([topic]).step()
    program.stop()
    program.seen.clear()
    assert program.losses() == [(f"{topic}-0", 4, 10)]
    done = reset(program, "--to-offset", str(offset))
    assert done.exit_code == 0, done
    assert program.losses() == [(f"{topic}-0", *each) for each in lost]
    undo = done.output.rpartition("undo ")[2].split()[0]
    apply_plan(plan_undo(undo))
    assert program.losses() == [(f"{topic}-0", 4, 10)]
    assert reset(program, "--to-offset", str(offset)).exit_code == 0
    program.start([topic]).step()
    assert program.seen == [read]
    assert CliRunner().invoke(app, ["checkpoint", "validate", str(program.location)]).exit_code == 0


@pytest.mark.parametrize("is_noticed", [False, True])
def test_offsets_of_a_topic_that_is_created_anew_are_not_reset(
    program: Program, topic: str, is_noticed: bool
) -> None:
    program.broker.produce(topic, values(0, 4))
    program.start([topic]).step()
    program.stop()
    create_anew(program.broker, topic, values(100, 109))
    if is_noticed:
        stepper = program.start([topic])
        with pytest.raises(KafkaDataLossError):
            stepper.step()
        program.stop()
    refused = reset(program, "--to-earliest").exception
    assert isinstance(refused, KafkaDataLossError)
    assert f"topic {topic} was deleted and created anew" in str(refused)
    program.start([topic], on_data_loss="earliest").step(2)
    program.stop()
    program.seen.clear()
    assert reset(program, "--to-offset", "7").exit_code == 0
    program.start([topic]).step()
    assert program.seen == [values(107, 109)]


def test_a_policy_that_does_not_exist(program: Program) -> None:
    with pytest.raises(ConfigError, match=r"on_data_loss=.none. is not possible.*fail, earliest"):
        program.start(["topic"], on_data_loss="none")
