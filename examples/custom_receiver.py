"""Reads a table to which an application appends, with a receiver of its own: each row once.

    python - <<'END'
    import sqlite3
    with sqlite3.connect("/tmp/shop.db") as db:
        db.execute("create table if not exists outbox (id integer primary key, body text)")
        db.executemany("insert into outbox (body) values (?)", [["hello"], ["world"]])
    END
    python examples/custom_receiver.py /tmp/shop.db /tmp/outbox

    python -c 'import pandas; print(pandas.read_parquet("/tmp/outbox/out"))'

The pattern is called transactional outbox: an application writes its events to a table, in the
transaction that makes the change they tell of.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from penstock.receivers import ThreadedReceiver
from penstock.streaming import StreamingContext


class OutboxReceiver(ThreadedReceiver):
    """The rows of a table ``outbox``, in the order of their ids."""

    # It is pickled and sent to an executor: it holds the path, and opens the database there.
    def __init__(self, database: str) -> None:
        self._database = database

    def receive(self) -> None:
        """Store new rows until the receiver is stopped; an error restarts it with a back-off."""
        # The position is durable in the same file as the rows before it. So after a crash the
        # receiver continues behind the last durable row: none is missing, and none comes twice.
        position = self.lastPosition() or 0
        with closing(sqlite3.connect(self._database)) as connection:
            while not self.shallEnd():
                # Ids must become visible in their order. They do here, because SQLite has one
                # writer at a time; a sequence of PostgreSQL does not promise it.
                rows = connection.execute(
                    "select id, body from outbox where id > ? order by id limit 1000", [position]
                ).fetchall()
                if rows:
                    position = rows[-1][0]
                    # Blocks while the rate is limited or the disk is full: do not read ahead.
                    self.store([body for _, body in rows], position=position)
                else:
                    self.pause(0.2)  # ends early when the receiver is stopped


def write(events: DataFrame, batch_id: int, out: str) -> None:
    """Write a batch under its id, in place of what an attempt left that was cut off."""
    if not events.isEmpty():  # or each idle second would leave a folder
        events.write.mode("overwrite").parquet(f"{out}/batch={batch_id}")


def main(database: str, folder: str) -> None:
    """Run until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("custom receiver")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        events = ssc.receiverStream(OutboxReceiver(database), name="events")
        events.foreachBatch(partial(write, out=f"{folder}/out"), name="events")
        return ssc

    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
