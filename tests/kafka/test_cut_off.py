"""Planned ranges that a real broker's topics do not hold any more when they are read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD

from penstock.errors import BatchFailedError, KafkaDataLossError
from penstock.journal.losses.loss_log import Loss, read_losses, source_folder
from penstock.kafka import KafkaRange
from penstock.kafka import cut_off as cut_off_since
from penstock.kafka.losses import LossLog
from penstock.kafka.pass_over import PassOver
from penstock.kafka.planner import Planner
from penstock.kafka.reader import read_batches, read_records
from penstock.kafka.topics import Topics
from penstock.storage import Storage, open_storage
from penstock.streaming import DStream
from tests.kafka.broker import Broker
from tests.kafka.program import Program
from tests.kafka.sink_driver import committed
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("patient")]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"cut-{next(_number)}", 2)


def values(first: int, last: int) -> list[bytes]:
    return [b"%03d" % n for n in range(first, last)]


def cut_off(broker: Broker, topic: str, left: list[bytes]) -> None:
    """Leave what a lost disk or an unclean election would, seen by offsets alone."""
    broker.delete_topic(topic)
    assert eventually(lambda: not broker.has_topic(topic))
    broker.create_topic(topic, 2)
    broker.produce(topic, left)


def deleted(broker: Broker, topic: str, left: list[bytes]) -> None:
    broker.delete_topic(topic)
    assert eventually(lambda: not broker.has_topic(topic))


@pytest.mark.parametrize(
    ("lose", "start", "read", "what"),
    [
        pytest.param(cut_off, 0, values(100, 105), "its log was cut off", id="within"),
        pytest.param(cut_off, 7, [], "its log was cut off", id="before"),
        pytest.param(deleted, 0, [], "the topic was deleted", id="deleted"),
    ],
)
def test_a_log_that_ends_within_a_planned_range_is_a_loss(
    broker: Broker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[Broker, str, list[bytes]], None],
    start: int,
    read: list[bytes],
    what: str,
) -> None:
    monkeypatch.setattr(cut_off_since, "SURE_S", 1.0)
    broker.produce(topic, values(0, 10))
    lose(broker, topic, values(100, 105))
    wanted = KafkaRange(topic, 0, start, 10)
    conf = broker.conf
    if lose is deleted:  # for 30 s the client takes such a topic for one that is new, by default
        conf["topic.metadata.propagation.max.ms"] = 2000
    with pytest.raises(KafkaDataLossError, match=f"{what}.*on_data_loss"):
        list(read_records(conf, [wanted]))
    log = LossLog(open_storage(tmp_path), "clicks")
    pass_over = PassOver(conf, log, to_latest=False)
    assert [r.value for r in read_records(conf, [wanted], pass_over)] == read
    batches = read_batches(conf, [wanted], ["value"], pass_over)
    assert [row["value"] for b in batches for row in b.to_pylist()] == read
    (loss,) = losses(log.storage)
    assert what in loss.reason
    assert (loss.records.start_offset, loss.records.end_offset) == (start + len(read), 10)


def test_a_log_that_was_cut_off_and_grows_again(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The batch has the same records whenever it runs, and no later one lacks what has come."""
    part, storage = f"{topic}/0", open_storage(tmp_path)

    def planner() -> Planner:
        return Planner(Topics(broker.conf, [topic]), storage, "clicks", "earliest")

    def read(planner: Planner, start: int, end: int) -> list[Any]:
        ranges = planner.ranges({part: start}, {part: end})
        return [r.value for r in read_records(broker.conf, ranges, planner.pass_over)]

    broker.produce(topic, values(0, 10))
    plans = planner()
    assert plans.latest({part: 0}, {})[part] == 10
    cut_off(broker, topic, values(100, 105))
    assert read(plans, 0, 10) == values(100, 105)
    broker.produce(topic, values(105, 108))
    plans = planner()
    assert read(plans, 0, 10) == values(100, 105)
    assert plans.latest({part: 10}, {}, done={})[part] == 10  # the batch is not committed yet
    assert read(plans, 0, 10) == values(100, 105)
    assert plans.latest({part: 10}, {}, done={part: 10})[part] == 8
    broker.produce(topic, values(108, 111))
    plans = planner()
    assert plans.latest({part: 8}, {})[part] == 11
    assert read(plans, 8, 11) == values(108, 111)
    held = [(loss.records.partition, loss.records.start_offset) for loss in losses(storage)]
    assert held == [(f"{topic}-0", 10), (f"{topic}-0~cut", 5)]


def losses(storage: Storage) -> list[Loss]:
    return read_losses(storage, source_folder("clicks"))


@pytest.mark.spark
def test_a_range_that_is_lost_whole_stays_in_the_division_of_its_batch(
    program: Program, topic: str, broker: Broker
) -> None:
    """An exactly-once sink wrote the batch in part, and refuses it with other partitions."""
    out = broker.create_topic(f"{topic}-out")
    for partition in (0, 1):
        broker.produce(topic, values(10 * partition, 10 * partition + 3), partition=partition)

    def define(stream: DStream) -> None:
        stream.foreachRDD(lambda rdd: broker.delete_records(topic, before=3))
        stream.to_kafka(out, broker.conf, value=lambda r: r.value, delivery="exactly_once")
        stream.foreachRDD(fail_at_first)

    def fail_at_first(rdd: RDD[Any]) -> None:
        program.note(rdd)
        if len(program.seen) == 1:
            raise RuntimeError("not yet")

    with pytest.raises(BatchFailedError, match="not yet"):
        program.start([topic], on_data_loss="earliest", define=define).step()
    program.start([topic], on_data_loss="earliest", define=define).step()
    assert program.seen == [values(10, 13)] * 2
    assert committed(broker, out) == {value.decode(): 1 for value in values(10, 13)}
    assert program.losses() == [(f"{topic}-0", 0, 3)]
