"""format("penstock-kafka") over a real broker: what queries read, over restarts, kills, losses."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.tools import apply_plan, plan_rewind
from penstock.rate import RateOverride, RateOverrides
from penstock.status.rate_facts import change_overrides, read_rates
from penstock.storage import open_storage
from penstock.structured.sinks import ParquetSink, read_parquet
from tests.kafka.broker import PASSWORD, Broker
from tests.structured.topic_query import TopicQuery
from tests.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def query(spark: SparkSession, broker: Broker, tmp_path: Path) -> TopicQuery:
    topic = broker.create_topic(f"structured-{next(_number)}", partitions=2)
    return TopicQuery(spark, broker, topic, tmp_path / "checkpoint")


def values(first: int, last: int) -> list[bytes | None]:
    return [b"%03d" % number for number in range(first, last)]


def test_a_query_reads_each_record_once_across_restarts(query: TopicQuery) -> None:
    query.broker.produce(query.topic, values(0, 3))
    query.broker.produce(query.topic, values(3, 5), partition=1)
    assert query.drain() == [values(0, 5)]
    assert query.drain() == []
    query.broker.produce(query.topic, values(5, 7))
    assert query.drain() == [values(5, 7)]
    # The form of Spark's Kafka source; the first batch only records where the query begins.
    first = query.offsets(0)
    assert first["(first batch)"] == {}
    assert (first[query.topic], query.offsets(1)[query.topic]) == (
        {"0": 0, "1": 0},
        {"0": 3, "1": 2},
    )
    assert query.offsets(2)[query.topic] == {"0": 5, "1": 2}
    apply_plan(plan_rewind(query.location, to_batch=1))
    assert query.drain() == [values(5, 7)]


def test_two_queries_over_one_dataframe(query: TopicQuery, tmp_path: Path) -> None:
    query.broker.produce(query.topic, values(0, 2))
    writer, places = query.frame().writeStream.format("noop"), [tmp_path / "one", tmp_path / "two"]
    writer = writer.trigger(availableNow=True)
    started = [writer.option("checkpointLocation", str(place)).start() for place in places]
    for each in started:
        assert each.awaitTermination(int(WAIT_S))
    for place in places:
        assert (place / "commits/1").exists()


def test_records_that_come_after_the_start_of_an_idle_query(query: TopicQuery) -> None:
    query.options["startingOffsets"] = "latest"
    running = query.start(processingTime="0 seconds")
    try:
        assert eventually(lambda: (query.location / "commits" / "0").exists())
        query.broker.produce(query.topic, values(0, 2))
        assert eventually(lambda: query.seen == [values(0, 2)])
        query.broker.add_partitions(query.topic, 3)
        query.broker.produce(query.topic, values(2, 4), partition=2)
        assert eventually(lambda: query.seen[1:] == [values(2, 4)])
    finally:
        running.stop()


def test_columns_are_those_of_sparks_source(query: TopicQuery) -> None:
    header = [("h", b"1"), ("h", None)]
    query.broker.produce(query.topic, [b"v", None], key=b"k", timestamp=1_000, headers=header)
    frame = query.read(includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = frame.orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition) == (b"k", b"v", query.topic, 0)
    assert (first.offset, first.timestamp.timestamp(), first.timestampType) == (0, 1.0, 0)
    assert [(h.key, h.value) for h in first.headers] == [("h", b"1"), ("h", None)]
    assert second.value is None
    assert "headers" not in query.read().columns


def test_an_unknown_option_is_refused_at_load(query: TopicQuery) -> None:
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        query.frame(startingOfsets="earliest")


@pytest.mark.storm
def test_numbered_records_into_a_sink_over_kills_and_a_rewind(
    query: TopicQuery, tmp_path: Path
) -> None:
    sink = ParquetSink(tmp_path / "out")
    failing = {2, 5}

    def write(frame: object, batch_id: int) -> None:
        sink(frame, batch_id)  # type: ignore[arg-type]
        if batch_id in failing:  # the batch is published, and not committed
            failing.remove(batch_id)
            raise RuntimeError("killed")

    query.on_batch = write
    query.options["maxOffsetsPerTrigger"] = "7"
    for round_ in range(4):
        first = round_ * 10
        query.broker.produce(query.topic, values(first, first + 6))
        query.broker.produce(query.topic, values(first + 6, first + 10), partition=1)
        left = len(failing)
        try:
            query.drain()
        except PySparkException:
            assert len(failing) < left
            query.drain()
        query.uncommit(query.newest())  # killed between the sink's commit and Spark's
    query.drain()
    found = [row.value for row in read_parquet(query.spark, tmp_path / "out").collect()]
    assert sorted(found) == values(0, 40)


def test_a_password_is_in_no_checkpoint_and_no_error(query: TopicQuery) -> None:
    query.broker.produce(query.topic, values(0, 2))
    query.options = {f"kafka.{name}": value for name, value in query.broker.secure_conf.items()}
    assert query.drain() == [values(0, 2)]
    held = [path.read_bytes() for path in query.location.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in data for data in held)
    query.options["kafka.sasl.username"] = "bob"
    with pytest.raises(PySparkException, match="KafkaError") as raised:
        query.drain()
    assert PASSWORD not in str(raised.value)


def test_rates_are_of_the_place_in_the_query(query: TopicQuery) -> None:
    """Whatever topics sources read."""
    other, added = (query.broker.create_topic(f"{query.topic}-{name}") for name in ("b", "a"))
    pressure = {"backpressure.enabled": "true", "onDataLoss": "earliest"}
    query.options = {**pressure, "lossLog": str(query.location)}
    both = query.frame
    subscribed = [other]

    def frame() -> DataFrame:
        second = both(subscribe=",".join(subscribed))
        return both().select("value").union(second.select("value"))

    query.frame = frame  # type: ignore[method-assign]
    query.broker.produce(query.topic, values(0, 2))
    query.broker.produce(other, values(2, 4))
    assert query.drain() == [values(0, 4)]
    storage = open_storage(str(query.location))
    assert {rates.stream for rates in read_rates(storage)} == {"0", "1"}
    RateOverrides(storage).set("1", RateOverride(paused=True))
    assert [rates.override.paused for rates in read_rates(storage)] == [False, True]
    subscribed.insert(0, added)
    query.broker.produce(query.topic, values(4, 6))
    query.broker.produce(other, values(6, 8))
    running = query.start(processingTime="0 seconds")
    try:
        assert eventually(lambda: sorted(chain(*query.seen[1:])) == values(4, 6))
        change_overrides(storage, "1", lambda override: replace(override, paused=False))
        assert eventually(lambda: sorted(chain(*query.seen[1:])) == values(4, 8))
    finally:
        running.stop()
    assert [rates.override.paused for rates in read_rates(storage)] == [False, False]
