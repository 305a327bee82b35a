"""Sinks for ``foreachBatch`` that write each batch once, however often it runs.

    query.writeStream.foreachBatch(ParquetSink("s3://bucket/orders"))

``batch``      what a batch is known by: query, output, batch id
``batch_log``  which batches of a Parquet sink are published     without Spark
``files``      what the tasks of a batch wrote, as they report it
``parquet``    Parquet files
``staging``    the protocol of tables                            without Spark
``postgres``   a database, by that protocol                      without Spark
``tables``     tables of PostgreSQL

``penstock.kafka.spark.write`` is the sink of Kafka.
"""

from penstock.structured.sinks.batch import query_batch
from penstock.structured.sinks.parquet import ParquetSink, published_files, read_parquet
from penstock.structured.sinks.tables import PostgresSink

__all__ = [
    "ParquetSink",
    "PostgresSink",
    "published_files",
    "query_batch",
    "read_parquet",
]
