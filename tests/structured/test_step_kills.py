"""A query that is killed at each step between its source's commit and Spark's.

    latestOffset -> offsets/N -> commit of N-1 -> partitions -> sink -> commits/N

The process that plans is killed on its way into and out of each call. Between sink and commits/N
the function of ``foreachBatch`` fails, which leaves what a kill of the driver there leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.journal import JournalStream
from penstock.structured.journal.source import JournalDataSource
from penstock.structured.kafka.source import KafkaDataSource
from penstock.structured.session import Session, bound_to
from penstock.structured.sinks import ParquetSink, read_parquet
from tests.journal.helpers import write_blocks
from tests.kafka.broker import Broker
from tests.structured.killed_readers import STEPS, KilledJournal, KilledKafka, arm, is_armed
from tests.waiting import WAIT_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BEFORE, AFTER = "to sink", "from sink"
_number = count()


class Killed:
    """A query that may be killed, and the sink that it writes."""

    def __init__(
        self,
        spark: SparkSession,
        source: type[JournalDataSource] | type[KafkaDataSource],
        options: dict[str, str],
        folder: Path,
    ) -> None:
        self._spark = spark
        self._source = source
        self._options = {"maxOffsetsPerTrigger": "2", **options}
        self._folder = folder
        (folder / "session").mkdir(mode=0o700)
        self._session = Session(str(folder / "session"), 2, 100)
        spark.dataSource.register(bound_to(source, self._session))
        self._sink = ParquetSink(folder / "lines")
        self._fails_at = ""

    def run(self, step: str = "") -> None:
        """Run it until it is killed at a step, or has read all."""
        in_sink = step in (BEFORE, AFTER)
        if in_sink:
            self._fails_at = step
        elif step:
            arm(self._session, step)
        stream = self._spark.readStream.format(self._source.name()).options(**self._options).load()
        query = (
            stream.selectExpr("cast(value AS string) AS value")
            .writeStream.foreachBatch(self._write)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if not step:
            assert query.awaitTermination(int(WAIT_S))
            return
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(int(WAIT_S))
        assert not is_armed(self._session), step
        assert not self._fails_at

    def lines(self) -> list[str]:
        rows = read_parquet(self._spark, self._folder / "lines").collect()
        return sorted(row.value for row in rows)

    def _write(self, df: DataFrame, batch_id: int) -> None:
        self._fail_at(BEFORE)
        self._sink(df, batch_id)
        self._fail_at(AFTER)

    def _fail_at(self, step: str) -> None:
        if self._fails_at == step:
            self._fails_at = ""
            raise RuntimeError(step)


def check(query: Killed, add: Callable[[list[str]], None]) -> None:
    numbers = count()
    for step in [*STEPS, BEFORE, AFTER]:
        add([f"{next(numbers):03}" for _ in range(3)])
        query.run(step)
    query.run()
    assert query.lines() == [f"{number:03}" for number in range(next(numbers))]


def test_a_query_over_a_journal(spark: SparkSession, stream: JournalStream, tmp_path: Path) -> None:
    options = {"journal": stream.storage.url, "stream": stream.name, "consumer": "q"}

    def add(lines: list[str]) -> None:
        write_blocks(stream, [lines[:2], lines[2:]])

    check(Killed(spark, KilledJournal, options, tmp_path), add)


def test_a_query_over_topics(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic(f"killed-{next(_number)}", partitions=2)
    servers = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}

    def add(lines: list[str]) -> None:
        broker.produce(topic, [line.encode() for line in lines])

    check(Killed(spark, KilledKafka, {"startingOffsets": "earliest", **servers}, tmp_path), add)
