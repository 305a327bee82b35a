"""Writes a DataFrame as Parquet files, and returns those that its tasks say they wrote.

Invariants:

1. What is returned is what tasks reported, never what a listing shows. Spark's own file sink does
   so: a task names its files itself, whatever Hadoop's settings say, and returns them with their
   sizes. Of a task that ran several times one result counts.
2. There is at least one file: the first task writes one without rows, too, which has the columns.
3. This process sees each of them, with its size, by the client that publishes it. So a path that
   executors do not share with the driver, and a store that Spark and Python reach at different
   endpoints, fail the batch before it is published.

Thin glue over py4j. Source: Spark's FileStreamSink and ManifestFileCommitProtocol.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame

from penstock.checkpoint.log_format import decode_log, parse_fields
from penstock.errors import NotFoundError, StorageError, UnsharedPathError
from penstock.storage import Storage

_LOG = "_spark_metadata"
_ENTRIES = ("0", "0.compact")
"""Spark's log of the one batch of such a folder: the second if it is to compact each entry."""
_VERSION = 1


def write_files(df: DataFrame, storage: Storage, folder: str) -> list[str]:
    """Write a DataFrame into a folder that does not exist; return the names of its files, sorted.

    Raises:
        UnsharedPathError: this process does not see what tasks wrote.
        StorageError: the folder cannot be read.
    """
    spark: Any = df.sparkSession
    execution = spark._jvm.org.apache.spark.sql.execution
    to_scala = spark._jvm.PythonUtils
    sink = execution.streaming.sinks.FileStreamSink(
        spark._jsparkSession,
        storage.uri(folder),
        execution.datasources.parquet.ParquetFileFormat(),
        to_scala.toSeq([]),
        to_scala.toScalaMap({}),
    )
    _InExecution(lambda: sink.addBatch(0, df._jdf)).of(df)
    written = _reported(storage, folder)
    seen = {entry.name: entry.size for entry in storage.list(folder)}
    unseen = sorted(name for name, size in written.items() if seen.get(name) != size)
    if unseen or not written:
        raise _unshared(storage.uri(folder), unseen, len(written))
    with suppress(StorageError):  # it has served; no reader takes it for files of the batch
        storage.delete_all(storage.find(f"{folder}/{_LOG}"))
    return sorted(written)


class _InExecution:
    """Runs a function as a query of Spark's, which has settings in tasks, observations and a page.

    ``Function0`` is what ``SQLExecution.withNewExecutionId`` takes; it calls it in this thread.
    """

    class Java:
        """For py4j."""

        implements = ("scala.Function0",)

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._error: Exception | None = None

    def apply(self) -> None:
        """Run the function."""
        try:
            self._run()
        except Exception as error:
            self._error = error
            raise

    def of(self, df: DataFrame) -> None:
        """Run the function as the query of a DataFrame; raises what it raises."""
        jvm: Any = df.sparkSession._jvm
        # By it the JVM says when it needs this object no more; foreachBatch has started it.
        ensure_callback_server_started(df.sparkSession.sparkContext._gateway)
        query, name = df._jdf.queryExecution(), jvm.scala.Option.apply("ParquetSink")
        try:
            jvm.org.apache.spark.sql.execution.SQLExecution.withNewExecutionId(query, name, self)
        except Exception:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            del self._run


def _reported(storage: Storage, folder: str) -> dict[str, int]:
    """Return the files that tasks reported and their sizes, none if this process sees no log."""
    for name in _ENTRIES:
        with suppress(NotFoundError):
            lines = decode_log(storage.read(f"{folder}/{_LOG}/{name}"), _VERSION)
            files = map(parse_fields, lines)
            return {str(each["path"]).rpartition("/")[2]: int(each["size"]) for each in files}
    return {}


def _unshared(folder: str, unseen: list[str], count: int) -> UnsharedPathError:
    what = f"{len(unseen)} of {count} files, such as {unseen[0]}" if unseen else "the files"
    return UnsharedPathError(
        f"the driver does not see {what} that tasks wrote, or not with the sizes that they had; "
        "nothing of the batch is published",
        operation="write batch",
        path=folder,
        hint="choose a path on a file system that is mounted on every host, or an object store "
        "that Spark's settings (spark.hadoop.fs...) and the driver's environment reach at the same "
        "endpoint",
    )
