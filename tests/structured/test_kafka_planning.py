"""Batches of queries over topics of a real broker: what is planned, over restarts, kills, losses.

Without Spark: ``DrivenQuery`` calls the reader as Spark does.
"""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.errors import ConfigError, KafkaDataLossError
from penstock.journal.losses.loss_log import read_losses, source_folder
from penstock.kafka.brokers import group_offsets
from penstock.kafka.offsets import ids_in
from penstock.storage import attach_storage
from tests.kafka.broker import Broker
from tests.structured.driven_query import DrivenQuery
from tests.waiting import eventually

pytestmark = pytest.mark.slow
_number = count()


@pytest.fixture
def query(broker: Broker, tmp_path: Path) -> DrivenQuery:
    topic = broker.create_topic(f"driven-{next(_number)}", partitions=2)
    return DrivenQuery(broker, topic, tmp_path / "checkpoint")


def values(first: int, last: int) -> list[bytes | None]:
    return [b"%03d" % number for number in range(first, last)]


def test_latest_is_resolved_once(query: DrivenQuery) -> None:
    query.options["startingOffsets"] = "latest"
    query.broker.produce(query.topic, values(0, 3))
    assert query.drain() == []
    query.uncommit(0)  # killed in its first batch
    query.broker.produce(query.topic, values(3, 5))
    assert query.drain() == [values(3, 5)]


def test_limits_and_the_least(query: DrivenQuery) -> None:
    query.broker.produce(query.topic, values(0, 5))
    query.options["maxOffsetsPerTrigger"] = "2"
    assert query.drain() == [values(0, 2), values(2, 4), values(4, 5)]
    query.options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "10m"}
    reader = query.reader()
    query.broker.produce(query.topic, values(5, 6))
    assert query.poll(reader)  # as in Spark, the first batch of a run waits for nothing
    query.broker.produce(query.topic, values(6, 8))
    assert not query.poll(reader)
    query.broker.produce(query.topic, values(8, 9))
    assert query.poll(reader)
    query.broker.produce(query.topic, values(9, 10))
    assert not query.poll(reader)
    assert query.poll(reader, ReadAllAvailable())
    assert query.seen[3:] == [values(5, 6), values(6, 9), values(9, 10)]
    reader.stop()
    query.options = {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "10m"}
    query.broker.produce(query.topic, values(10, 11))
    assert query.drain() == [values(10, 11)]


def test_partitions_and_topics_that_come_later(query: DrivenQuery) -> None:
    query.options = {"subscribePattern": f"{query.topic}.*", "startingOffsets": "latest"}
    query.broker.produce(query.topic, values(0, 2))
    reader = query.reader()
    assert query.poll(reader)
    query.broker.add_partitions(query.topic, 3)
    query.broker.produce(query.topic, values(2, 4), partition=2)
    other = query.broker.create_topic(f"{query.topic}-other")
    query.broker.produce(other, values(4, 5))
    assert eventually(lambda: query.poll(reader))
    while query.poll(reader):
        pass
    reader.stop()
    assert sorted(value or b"" for batch in query.seen for value in batch) == values(2, 5)
    assert query.offsets(query.newest())[query.topic]["2"] == 2


def test_a_query_that_begins_before_its_topics_loses_none_of_their_records(
    query: DrivenQuery,
) -> None:
    pattern = f"{query.topic}-later.*"
    query.options = {"subscribePattern": pattern, "startingOffsets": "latest", "groupIdPrefix": "a"}
    assert query.drain() == []
    assert query.newest() == 0
    reader = query.reader()
    assert not query.poll(reader)
    topic = query.broker.create_topic(f"{query.topic}-later")
    query.broker.produce(topic, values(0, 3))
    reader.stop()
    assert query.drain() == [values(0, 3)]


def test_killed_before_each_commit(query: DrivenQuery) -> None:
    query.options["maxOffsetsPerTrigger"] = "2"
    query.broker.produce(query.topic, values(0, 6))

    def fail(batch_id: int) -> None:
        raise KeyboardInterrupt

    for number in range(6, 10):
        query.before_commit = fail
        with pytest.raises(KeyboardInterrupt):
            query.drain()
        query.broker.produce(query.topic, values(number, number + 1))
        killed = query.seen.pop() if query.seen else None
        query.before_commit = lambda batch_id: None
        reader = query.reader()
        query.resume(reader)
        reader.stop()
        assert killed is None or killed == query.seen[-1]
    query.drain()
    assert [value for batch in query.seen for value in batch] == values(0, 10)


def test_a_checkpoint_of_sparks_own_source_goes_on(query: DrivenQuery) -> None:
    query.broker.produce(query.topic, values(0, 6))
    query.drain()
    _as_spark_wrote_it(query, {"0": 2, "1": 0}, last=1)
    assert query.drain() == [values(2, 6)]


def test_a_first_batch_of_sparks_own_source_is_not_run(query: DrivenQuery) -> None:
    query.broker.produce(query.topic, values(0, 6))
    query.drain()
    _as_spark_wrote_it(query, {"0": 2, "1": 0}, last=0)
    query.uncommit(0)
    with pytest.raises(ConfigError, match="first batch was planned by another source"):
        query.drain()


def _as_spark_wrote_it(query: DrivenQuery, ends: dict[str, int], last: int) -> None:
    """Leave the logs of a query over Spark's source up to a batch, which ends there."""
    for folder in ("offsets", "commits"):
        for path in (query.location / folder).iterdir():
            if int(path.name) > last:
                path.unlink()
    (query.location / "offsets" / f"{last}").write_text(json.dumps({query.topic: ends}))


def test_lost_records_end_the_query_or_are_noted(query: DrivenQuery, tmp_path: Path) -> None:
    query.broker.produce(query.topic, values(0, 2))
    query.drain()
    query.broker.produce(query.topic, values(2, 6))
    query.broker.delete_records(query.topic, 4)
    with pytest.raises(KafkaDataLossError, match="were deleted before they were read"):
        query.drain()
    query.options = {"onDataLoss": "earliest", "lossLog": str(tmp_path / "losses")}
    assert query.drain() == [values(4, 6)]
    (loss,) = read_losses(attach_storage(str(tmp_path / "losses")), source_folder("0"))
    assert (loss.records.start_offset, loss.records.end_offset) == (2, 4)
    query.options = {"failOnDataLoss": "false"}  # Spark's option: noted in the log of the driver
    query.broker.produce(query.topic, values(6, 9))
    query.broker.delete_records(query.topic, 7)
    assert query.drain() == [values(7, 9)]


def test_a_group_shows_the_lag(query: DrivenQuery) -> None:
    query.options["groupIdPrefix"] = "shop"
    query.broker.produce(query.topic, values(0, 3))
    query.drain()
    query.broker.produce(query.topic, values(3, 4))
    query.drain()
    group = "shop-driven-0"
    assert eventually(
        lambda: (
            group_offsets(query.broker.conf, group)
            == {f"{query.topic}/0": 3, f"{query.topic}/1": 0}
        )
    )


def test_back_pressure(query: DrivenQuery) -> None:
    query.options = {"backpressure.enabled": "true", "backpressure.initialRate": "2"}
    query.broker.produce(query.topic, values(0, 5))
    assert query.drain() == [values(0, 2), values(2, 4), values(4, 5)]
    held = [path.read_text() for path in (query.location.parent / "rates").iterdir()]
    assert held
    assert not any(query.broker.address in text for text in held)  # nor any secret


def test_batch_reads(query: DrivenQuery) -> None:
    for number in range(4):
        query.broker.produce(query.topic, [b"%d" % number], timestamp=1000 * (number + 1))
    topic = query.topic

    def found(**options: str) -> list[bytes]:
        return query.read({"subscribe": topic, **options})

    assert found() == [b"0", b"1", b"2", b"3"]
    some = json.dumps({topic: {"0": 1, "1": -2}})
    assert found(startingOffsets=some, endingOffsets=json.dumps({topic: {"0": 3}})) == [b"1", b"2"]
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert found(startingTimestamp="2000", endingTimestamp="4000", **latest) == [b"1", b"2"]
    times = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 3000}})}
    assert found(**times) == [b"2", b"3"]
    assert query.read({"assign": json.dumps({topic: [1]})}) == []
    assert query.read({"subscribePattern": f"{topic}.*", "minPartitions": "3"}) == found()
    assert len(query.batch_reader({"subscribe": topic, "minPartitions": "3"}).partitions()) >= 3
    # Where there is nothing to read, Spark makes a task without a partition.
    assert list(query.batch_reader({"subscribe": topic}).read(InputPartition(None))) == []
    for options, message in (
        ({"startingOffsets": "latest"}, "a batch read ends there"),
        ({"startingTimestamp": "2000"}, "has no record of the starting time"),
        ({"startingOffsets": json.dumps({topic: {"7": 0}})}, f"{topic}/7, which does not exist"),
        ({"startingOffsets": json.dumps({topic: {"0": 9}})}, r"holds \[0, 4\)"),
        ({"maxOffsetsPerTrigger": "5"}, "read.format.* has no option 'maxOffsetsPerTrigger'"),
        ({"kafka.sesion.timeout.ms": "5"}, "librdkafka"),
    ):
        with pytest.raises(ConfigError, match=message):
            found(**options)
    with pytest.raises(ConfigError, match=f"option assign names {topic}/5"):
        query.read({"assign": json.dumps({topic: [5]})})


def test_options_of_a_batch_read_are_refused_for_a_query(query: DrivenQuery) -> None:
    query.options["endingOffsets"] = "latest"
    with pytest.raises(ConfigError, match=r"readStream.* has no option 'endingOffsets'"):
        query.drain()


def create_again(query: DrivenQuery, records: list[bytes | None]) -> None:
    query.broker.delete_topic(query.topic)
    assert eventually(lambda: not query.broker.has_topic(query.topic))
    query.broker.create_topic(query.topic)
    query.broker.produce(query.topic, records)


@pytest.mark.parametrize("policy", ["fail", "earliest", "as Spark"])
def test_a_topic_that_is_created_again_stops_the_query(
    query: DrivenQuery, tmp_path: Path, policy: str
) -> None:
    """Although the new topic has records behind the query's offsets; also of a planned batch."""
    losses = {"onDataLoss": "earliest", "lossLog": str(tmp_path / "losses")}
    options = {"fail": {}, "earliest": losses, "as Spark": {"failOnDataLoss": "false"}}
    query.options = options[policy]
    query.broker.produce(query.topic, values(0, 2))
    query.drain()
    query.broker.produce(query.topic, values(2, 5))
    reader = query.reader()
    start = query.resume(reader)
    end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
    create_again(query, values(10, 20))
    before = re.escape(ids_in(start)[query.topic])
    what = f"topic {query.topic} was deleted and created again: .* id {before}, and it has id"
    with pytest.raises(KafkaDataLossError, match=what):
        query.run(reader, start, end)
    reader.stop()
    for _ in range(2):
        with pytest.raises(KafkaDataLossError, match=what):
            query.drain()
    query.run_nothing({query.topic: {"0": 0}})  # as `penstock checkpoint rewind --to-offsets`
    assert query.drain() == [values(10, 20)]
    assert ids_in(query.offsets(query.newest())) != ids_in(start)


def test_tasks_note_losses_under_the_place_of_their_source(query: DrivenQuery) -> None:
    """Of a query's second source, too: a batch that runs again leaves out what is lost."""
    query.options = {"onDataLoss": "earliest", "lossLog": str(query.location)}
    query.place = "1"
    query.broker.produce(query.topic, values(0, 4))
    query.drain()
    query.broker.produce(query.topic, values(4, 8))
    reader = query.reader()
    start = query.resume(reader)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    query.broker.delete_records(query.topic, 6)
    query.run(reader, start, end)
    reader.stop()
    assert query.seen == [values(0, 4), values(6, 8)]
    storage = attach_storage(str(query.location))
    (loss,) = read_losses(storage, source_folder("1"))
    assert (loss.records.start_offset, loss.records.end_offset) == (4, 6)
    assert not read_losses(storage, source_folder("0"))
