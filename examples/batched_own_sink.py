"""Keeps the newest record of each key in an SQLite table, with a sink of your own.

    pip install 'penstock-spark[kafka]'        # kafka_exactly_once.py says how to start a broker
    python examples/batched_own_sink.py localhost:9092 prices /tmp/prices.db /tmp/prices
    sqlite3 /tmp/prices.db 'select * from newest'

``add_checkpoint()`` says that the function before it is a sink: when it has processed all of a
batch, the batch is done. After a kill the records of the running batch are processed again. That
changes nothing here, because a row replaces the one that its key has.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

from penstock.batched import Stream, from_kafka_batched


def save(records: list[dict[str, Any]], database: str) -> None:
    """Write one partition's records of a batch, in one transaction; runs where they are read."""
    connection = sqlite3.connect(database, timeout=60)
    with connection:
        connection.execute("create table if not exists newest (key text primary key, value text)")
        rows = [(record["key"].decode(), record["value"].decode()) for record in records]
        connection.executemany("insert or replace into newest values (?, ?)", rows)
    connection.close()


def build(brokers: str, topic: str, database: str, checkpoints: str) -> Stream:
    """Return the pipeline."""
    conf = {"bootstrap.servers": brokers, "auto.offset.reset": "earliest"}
    stream = from_kafka_batched([topic], conf, checkpoint_path=checkpoints, keys=True)
    return stream.sink(save, database).add_checkpoint()


if __name__ == "__main__":
    stream = build(*sys.argv[1:])
    stream.start()
    stream.awaitTermination()
