"""Batches to a table of PostgreSQL or SQLite; ``staging`` has the protocol and its invariants."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from itertools import chain
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)
from pyspark.sql import types as T  # noqa: N812

from penstock.errors import ConfigError
from penstock.exactly_once import begin_write
from penstock.model import OutputBatch
from penstock.structured.sinks.batch import note_write, query_batch
from penstock.structured.sinks.sqlite import Sqlite
from penstock.structured.sinks.staging import Database, Loaded, Stage, begin, publish

__all__ = ["PostgresSink", "SqliteSink"]

_LOADED = "mark string, records long"
_NESTED = (T.StructType, T.ArrayType, T.MapType)
_PLAIN = (
    T.StringType, T.BooleanType, T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType,
    T.BinaryType,
)  # fmt: skip
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark leaves out nulls and microseconds unless it is told."""
_log = logging.getLogger(__name__)


class _TableSink:
    """Writes batches to a table, each once: a function for ``foreachBatch``."""

    def __init__(self, database: Database, where: str, table: str) -> None:
        self._database = database
        self._where = where
        self._table = table

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch of a Structured query; raises as ``write`` and ``query_batch``."""
        self.write(df, query_batch(df, batch_id))

    def write(self, df: DataFrame, output: OutputBatch) -> None:
        """Write a batch, unless it is written.

        Args:
            df: its records. Columns go to those of their names; the others get their defaults.
                Nested values are written as JSON, times in UTC.
            output: what it is known by: the third argument of a DStream's ``foreachBatch``, or
                ``query_batch``.

        Raises:
            ConfigError: the table does not exist, or lacks a column, or cannot have its type; or
                ``output`` is none.
            SinkError: a later batch is written already, or this one was: by this run, or with other
                records by a run that this one knows nothing of.
        """
        begin_write(output, f"{self._where} {self._table}")
        rows = _columns(df)
        stage = begin(self._database, self._table, output, df.columns)
        target = self._database.find(self._table, "")  # one table may be given by two names
        where = f"{self._where} {target.table}"
        if stage is None:
            note_write(where, output)
            _log.info("Batch %d is written already", output.batch_id)
            return
        tasks = rows.mapInArrow(_Load(self._database, stage), _LOADED).collect()
        publish(self._database, stage, [Loaded(*task) for task in tasks])
        note_write(where, output)


class SqliteSink(_TableSink):
    """Writes batches to a table of an SQLite file, each once: a function for ``foreachBatch``.

    Executors write to the file, one at a time: they run on this machine.

    Args:
        path: an existing file.
        table: an existing table.

    Raises:
        ConfigError: there is no such file.
    """

    def __init__(self, path: str | os.PathLike[str], table: str) -> None:
        path = os.path.realpath(path)
        if not os.path.isfile(path):
            raise ConfigError(
                "there is no such file",
                operation="write batch",
                path=path,
                hint=f"create the database first, with the table {table}",
            )
        super().__init__(Sqlite(path), path, table)


class PostgresSink(_TableSink):
    """Writes batches to a table of PostgreSQL, each once: a function for ``foreachBatch``.

    Args:
        url: of the database, for libpq: ``postgresql://etl@host/shop?passfile=/run/secrets/pg``.
            A password in it travels to executors with each batch, and the sink does not pickle.
        table: an existing table, ``orders`` or ``shop.orders``; others are created in its schema.

    Raises:
        ConfigError: psycopg is not installed, or the URL is not one.
    """

    def __init__(self, url: str, table: str) -> None:
        try:
            from psycopg.conninfo import conninfo_to_dict

            from penstock.structured.sinks.postgres import Postgres
        except ImportError as error:
            raise ConfigError(
                "PostgresSink needs psycopg",
                operation="write batch",
                hint="pip install 'penstock-spark[postgres]', also where the executors run",
            ) from error
        try:
            parts = conninfo_to_dict(url)
        except Exception:
            # What the client says may quote the URL, and with it a password.
            raise ConfigError(
                "the URL of PostgreSQL cannot be parsed",
                operation="write batch",
                hint="postgresql://user@host/database?passfile=/run/secrets/pgpass",
            ) from None
        self._has_password = "password" in parts
        where = " ".join(str(parts.get(name)) for name in ("host", "port", "dbname"))
        super().__init__(Postgres(url), where, table)

    def __getstate__(self) -> dict[str, Any]:
        if self._has_password:
            _refuse_to_pickle()
        return self.__dict__


def _refuse_to_pickle() -> NoReturn:
    raise ConfigError(
        "the URL of a PostgresSink has a password, which no checkpoint may hold",
        operation="pickle sink",
        hint="name a file that has it instead, on each host: ?passfile=/run/secrets/pgpass",
    )


class _Load:
    """Task: copies the rows of its partition; a class, so that it pickles by name."""

    def __init__(self, database: Database, stage: Stage) -> None:
        self._database = database
        self._stage = stage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if len(batch))
        if (first := next(filled, None)) is None:
            return
        mark = secrets.token_hex(8)
        records = self._database.load(self._stage, mark, chain([first], filled))
        yield pa.record_batch([pa.array([mark]), pa.array([records])], names=["mark", "records"])


def _columns(df: DataFrame) -> DataFrame:
    """Return the rows with columns of types that databases have.

    They are named by their positions: Spark takes dots and quotes in a name for its own.

    Raises:
        ConfigError: they have none for a column.
    """
    columns = []
    for position, field in enumerate(df.schema.fields):
        column = F.col(f"`{field.name.replace('`', '``')}`")
        if isinstance(field.dataType, _NESTED):
            column = F.to_json(column, _JSON)
        elif not isinstance(field.dataType, _PLAIN):
            raise ConfigError(
                f"column {field.name} is {field.dataType.simpleString()}",
                operation="write batch",
                hint="cast it to a string or a number",
            )
        columns.append(column.alias(str(position)))
    return df.select(columns)
