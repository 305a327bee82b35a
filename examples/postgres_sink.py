r"""Receives orders over HTTP and inserts them into a table of PostgreSQL, each exactly once.

    pip install 'penstock-spark[http,postgres]' && sudo apt-get install postgresql
    export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
    initdb -D /tmp/orders/db -A trust -U me
    pg_ctl -D /tmp/orders/db -l /tmp/orders/db.log -o '-k /tmp' start
    psql -h /tmp -U me postgres -c 'create table orders (id bigint, item text, amount float8)'
    python examples/postgres_sink.py 8080 'postgresql:///postgres?host=/tmp&user=me' /tmp/orders

    curl -H 'Content-Type: application/x-ndjson' -H 'Idempotency-Key: 1' \
        --data-binary '{"id": 1, "item": "shoes", "amount": 59.9}' http://127.0.0.1:8080/
    psql -h /tmp -U me postgres -c 'table orders'

Put a password in a file that each host has: `postgresql://etl@db/shop?passfile=/run/secrets/pgpass`.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from penstock.streaming import OutputBatch, StreamingContext
from penstock.structured.sinks import PostgresSink


def main(port: str, url: str, folder: str, table: str = "orders") -> None:
    """Run until it is stopped."""
    sink = PostgresSink(url, table)

    # The third argument is what the batch is known by: checkpoint location, output and batch id.
    # The sink stores it in the transaction that inserts the rows, and skips a batch that it has.
    def write(orders: DataFrame, batch_id: int, output: OutputBatch) -> None:
        if not orders.isEmpty():
            sink.write(orders, output)

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("postgres sink")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        schema = "id int64, item string, amount float64"
        orders = ssc.httpStream(int(port), schema=schema, name="orders")
        # The sink knows the output by its name: under another one it would write batches again.
        orders.foreachBatch(write, name="orders")
        return ssc

    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
