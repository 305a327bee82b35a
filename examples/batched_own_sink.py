"""Keeps the newest record of each key in an SQLite table: a sink of one's own.

    python batched_own_sink.py BROKERS TOPIC DATABASE CHECKPOINTS

``add_checkpoint()`` says that the function before it is a sink: when it has taken in a whole batch,
the batch is done. After a kill the records of the running batch are processed again, which does no
harm here: a row that is written twice is written once.
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
