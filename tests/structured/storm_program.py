"""The program that ``test_query_storm`` kills: a receiver, and a query over each of both sources.

    python storm_program.py MASTER PLACES

PLACES is JSON: what is where. Begins when it is told to, by a line. Each query writes its batches
to all sinks, and is started again when it ends. Prints a line for every batch that was written.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.kafka.spark import write as write_to_kafka
from penstock.receivers import TailReceiver
from penstock.structured import register, start_receivers
from penstock.structured.sinks import ParquetSink, PostgresSink, query_batch
from tests.driver_program import new_spark, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCES = ("penstock", "penstock-kafka")
SETTINGS = {
    "spark.default.parallelism": "1",  # whatever executors there are: the same tasks
    "spark.sql.streaming.minBatchesToRetain": "5",
    "spark.task.maxFailures": "8",
}


@dataclass(frozen=True)
class Places:
    """Where the program finds and leaves everything."""

    folder: str
    logs: str
    brokers: str
    topic: str
    postgres: str

    @property
    def journal(self) -> str:
        return f"{self.folder}/journal"

    def checkpoint(self, source: str) -> str:
        return f"{self.folder}/checkpoint-{source}"

    def parquet(self, source: str) -> str:
        return f"{self.folder}/parquet-{source}"

    def out(self, source: str) -> str:
        return f"{self.topic}-{source}"

    def options(self, source: str) -> dict[str, str]:
        if source == "penstock":
            return {"journal": self.journal, "stream": "s", "consumer": "q"}
        topics = {"subscribe": self.topic, "startingOffsets": "earliest"}
        return {"kafka.bootstrap.servers": self.brokers, **topics}

    def encoded(self) -> str:
        return json.dumps(asdict(self))


class Writer:
    """Writes batches of one query to all sinks."""

    def __init__(self, places: Places, source: str) -> None:
        self._sinks = {
            "parquet": ParquetSink(places.parquet(source)),
            "postgres": PostgresSink(places.postgres, "lines"),
        }
        self._source = source
        self._topic = places.out(source)
        self._conf = {"bootstrap.servers": places.brokers}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        rows = df.selectExpr(f"'{self._source}' AS source", "cast(value AS string) AS value")
        for output, sink in self._sinks.items():
            sink.write(rows, query_batch(df, batch_id, output))
        topic = query_batch(df, batch_id, "topic")
        write_to_kafka(rows, topic, self._topic, self._conf, delivery="exactly_once")
        say("committed", batch_id, self._source)


def keep(spark: SparkSession, places: Places, source: str) -> None:
    """Run a query; start it again when it ends."""
    while True:
        options = {"maxOffsetsPerTrigger": "20000", **places.options(source)}
        stream = spark.readStream.format(source).options(**options).load()
        writer = stream.writeStream.foreachBatch(Writer(places, source))
        query = writer.option("checkpointLocation", places.checkpoint(source)).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print("ended", source, str(error)[:2000], file=sys.stderr, flush=True)
        time.sleep(0.1)


def main(master: str, encoded: str) -> None:
    sc = new_spark(master, SETTINGS)
    spark = SparkSession.builder.getOrCreate()
    sc.range(2, numSlices=2).count()  # executors are there, and their workers
    say("ready")
    sys.stdin.readline()
    places = Places(**json.loads(encoded))
    register(spark)
    start_receivers(spark, TailReceiver(f"{places.logs}/app.log*"), places.journal, "s")
    for source in SOURCES:
        threading.Thread(target=keep, args=(spark, places, source), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
