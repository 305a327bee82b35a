"""Every exactly-once sink keeps one contract, with both front ends; Kafka's on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import SinkError
from penstock.kafka.spark import write as write_to_kafka
from penstock.model import OutputBatch
from penstock.structured.sinks import ParquetSink, PostgresSink, read_parquet
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import committed
from tests.structured.exactly_once_suite import ExactlyOnceSinkSuite, SinkUnderTest
from tests.structured.postgres import Server, needs_postgres

pytestmark = pytest.mark.spark
_number = count()


@pytest.fixture
def spark(sc: SparkContext) -> SparkSession:
    return SparkSession.builder.getOrCreate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


class TestParquet(ExactlyOnceSinkSuite):
    @pytest.fixture
    def sink(self, spark: SparkSession, tmp_path: Path) -> SinkUnderTest:
        def read() -> list[str]:
            try:
                return [row.value for row in read_parquet(spark, tmp_path / "out").collect()]
            except SinkError:  # no batch is published
                return []

        first, link = ParquetSink(tmp_path / "out"), tmp_path / "link"
        link.symlink_to(tmp_path / "out")
        return SinkUnderTest(first.write, read, ParquetSink(link).write)


@needs_postgres
@pytest.mark.slow
class TestPostgres(ExactlyOnceSinkSuite):
    @pytest.fixture
    def sink(self, server: Server) -> SinkUnderTest:
        import psycopg

        table = f"lines{next(_number)}"

        def query(sql: str) -> list[str]:
            with psycopg.connect(server.url, autocommit=True) as db:
                found = db.execute(sql)  # type: ignore[arg-type,unused-ignore]
                return [value for (value,) in found] if found.description else []

        query(f"CREATE TABLE {table} (value text)")
        read = f"SELECT value FROM {table}"
        folder = str(server.folder)
        other = PostgresSink(server.url.replace(folder, f"{folder}/"), f"public.{table}").write
        return SinkUnderTest(PostgresSink(server.url, table).write, lambda: query(read), other)


@pytest.mark.slow
class TestKafka(ExactlyOnceSinkSuite):
    @pytest.fixture
    def sink(self, broker: Broker) -> SinkUnderTest:
        topic = broker.create_topic(f"contract-{next(_number)}")

        def write(df: DataFrame, output: OutputBatch) -> None:
            write_to_kafka(df, output, topic, broker.conf, delivery="exactly_once")

        def other(df: DataFrame, output: OutputBatch) -> None:
            servers = broker.conf["bootstrap.servers"].replace("127.0.0.1", "localhost")
            conf = {**broker.conf, "bootstrap.servers": servers}
            assert conf != broker.conf
            write_to_kafka(df, output, topic, conf, delivery="exactly_once")

        return SinkUnderTest(write, lambda: committed(broker, topic).elements(), other)
