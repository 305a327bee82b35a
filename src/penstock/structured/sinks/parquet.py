"""Batches as Parquet files: an attempt writes files of its own, and one exclusive file publishes.

``batch_log`` has the protocol and its invariants.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 (PySpark's own name for it)

from penstock.errors import SinkError
from penstock.exactly_once import begin_write, check_once, check_plan, new_write
from penstock.model import OutputBatch
from penstock.storage import Storage, local_root, open_existing, open_storage
from penstock.storage.posix import sync_path
from penstock.structured.sinks.batch import query_batch
from penstock.structured.sinks.batch_log import PUBLISHED, BatchLog, Published
from penstock.structured.sinks.files import write_files
from penstock.structured.sinks.values import check_names

_log = logging.getLogger(__name__)


class ParquetSink:
    """Writes batches under a folder, each once: a function for ``foreachBatch``.

    Several queries may write to one folder. ``read_parquet`` reads it: Spark takes the names of the
    files' folders for hidden ones, so a plain reader finds nothing rather than too much.

    Args:
        path: the folder, or any URL that a journal may have, which executors can write to.

    Raises:
        ConfigError: the storage cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._storage = open_storage(path)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch of a Structured query; raises as ``write`` and ``query_batch``."""
        self.write(df, query_batch(df, batch_id))

    def write(self, df: DataFrame, output: OutputBatch) -> None:
        """Write a batch, unless it is written.

        Args:
            df: its records.
            output: what it is known by: the third argument of a DStream's ``foreachBatch``, or
                ``query_batch``.

        Raises:
            ConfigError: ``output`` is none or has no plan, or the program could pass a batch over;
                or two columns have one name; or the driver does not see what tasks wrote.
            SinkError: a later batch is written already, or this one was, by this run or with
                another plan; or the location was restored from an older copy.
            StorageError: the batch cannot be published, or it is not known whether it was.
        """
        begin_write(output, self._storage.url)
        _check_names(df.schema)
        log = BatchLog(self._storage, output.location_id, output.output)
        is_published = log.has(output.batch_id)
        self._check(output, log.newest)
        if is_published:
            _log.info("Batch %d is published already", output.batch_id)
            return
        attempt = new_write(output)
        folder = log.attempt_folder(output.batch_id, attempt)
        files = write_files(df, self._storage, folder)
        _make_durable(self._storage, folder, files)
        if not log.publish(Published(output.batch_id, attempt, files, output.plan)):
            self._check(output, log.newest)
            _log.warning(
                "Batch %d was published by another attempt; what this one wrote was deleted",
                output.batch_id,
            )

    def _check(self, output: OutputBatch, newest: Published) -> None:
        check_plan(output, newest.batch_id, newest.plan, self._storage.url)
        if newest.batch_id == output.batch_id:
            check_once(output, newest.attempt, self._storage.url)


def read_parquet(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """Return the records of all published batches of a ``ParquetSink``.

    It has the columns of all batches; those that a batch lacks are null in it.
    The batches are those of this moment: later ones are not in the DataFrame.

    Raises:
        SinkError: there are none.
        ConfigError, StorageError, LogFormatError: the sink cannot be read.
    """
    files = published_files(path)
    if not files:
        raise SinkError(
            "no batch is published, so the columns are not known",
            operation="read sink",
            path=os.fspath(path),
            hint="give the path of the ParquetSink, after its first batch",
        )
    whole = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "mergeSchema": "true"}
    return spark.read.options(**whole).parquet(*files)


def published_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the URIs of all published files, in the order of batches, for any reader of Parquet.

    Raises:
        ConfigError, StorageError, LogFormatError: the sink cannot be read.
    """
    storage = open_existing(
        os.fspath(path), operation="read sink", hint="give the path of the ParquetSink"
    )
    found: list[str] = []
    for location in _folders(storage, PUBLISHED):
        for output in _folders(storage, f"{PUBLISHED}/{location}"):
            log = BatchLog(storage, location, output)
            found += log.paths(log.read())
    return [storage.uri(file) for file in found]


def _folders(storage: Storage, folder: str) -> list[str]:
    return [entry.name for entry in storage.list(folder) if entry.is_folder]


def _check_names(kind: T.DataType) -> None:
    """Raise ConfigError for two columns, or fields of a struct, that no reader could tell apart."""
    inner: list[T.DataType] = []
    if isinstance(kind, T.StructType):
        check_names(kind.names, tells_case=False)
        inner = [field.dataType for field in kind]
    elif isinstance(kind, T.ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, T.MapType):
        inner = [kind.keyType, kind.valueType]
    for each in inner:
        _check_names(each)


def _make_durable(storage: Storage, folder: str, files: Sequence[str]) -> None:
    """Make files and their names survive a power cut: Spark does not on a file system."""
    root = local_root(storage.url)
    if root is None:
        return
    parts = folder.split("/")
    folders = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
    for path in [*(f"{folder}/{name}" for name in files), *reversed(folders)]:
        sync_path(os.path.join(root, path))
