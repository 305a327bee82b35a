r"""Reads orders from a Kafka topic and writes the large ones to another topic, each exactly once.

    pip install 'penstock-spark[kafka]'
    # A broker without docker: unpack https://kafka.apache.org/downloads, and in its folder
    bin/kafka-storage.sh format --standalone -t $(bin/kafka-storage.sh random-uuid) \
        -c config/server.properties
    bin/kafka-server-start.sh -daemon config/server.properties
    for t in orders large; do bin/kafka-topics.sh --bootstrap-server localhost:9092 \
        --create --topic $t; done
    python examples/kafka_exactly_once.py localhost:9092 orders large /tmp/orders

    echo '{"id": 1, "amount": 250}' | bin/kafka-console-producer.sh \
        --bootstrap-server localhost:9092 --topic orders
    bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic large \
        --from-beginning --isolation-level read_committed

Killed at any step and started again, it writes no order twice and leaves none out.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from penstock.streaming import StreamingContext


def main(brokers: str, source: str, target: str, checkpoint: str) -> None:
    """Run until it is stopped."""
    conf = {"bootstrap.servers": brokers}

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("large orders")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        # Where each batch ends in each partition is durable before it is read: a batch that runs
        # again reads the same records. "earliest" applies to the first start only.
        orders = ssc.kafkaStream([source], conf, "earliest", valueDecoder=json.loads, name="orders")
        large = orders.map(lambda record: record.value).filter(lambda order: order["amount"] >= 100)
        # The batch's id is written in the same transaction as its records: a batch that runs again
        # is skipped, and a program that wakes after its successor has started is refused. The
        # output's name belongs to that id, so it must not change.
        large.to_kafka(
            target,
            conf,
            key=lambda order: str(order["id"]),
            value=json.dumps,
            delivery="exactly_once",
            name="large",
        )
        return ssc

    ssc = StreamingContext.getOrCreate(checkpoint, create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
