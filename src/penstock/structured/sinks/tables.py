"""Batches to a table of PostgreSQL; ``staging`` has the protocol and its invariants."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)
from pyspark.sql import types as T  # noqa: N812

from penstock.conf import SINKS_BAD_VALUES, StreamingSettings
from penstock.errors import ConfigError, SinkError
from penstock.exactly_once import begin_write
from penstock.model import OutputBatch
from penstock.structured.sinks.batch import query_batch
from penstock.structured.sinks.staging import Database, Loaded, Stage, begin, publish
from penstock.structured.sinks.values import BadValueError, Fitting, check_names

_LOADED = "mark string, records long, bad long, text string, hint string"
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


class PostgresSink:
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
        self._where = " ".join(str(parts.get(name)) for name in ("host", "port", "dbname"))
        self._database: Database = Postgres(url)
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
                ``output`` is none or has no plan, or the program could pass a batch over.
            SinkError: a later batch is written already, or this one was, by this run or with
                another plan; or the location was restored from an older copy; or the table cannot
                hold a value (docs/structured_sinks.md).
        """
        where = f"{self._where} {self._table}"
        begin_write(output, where)
        check_names(df.columns, tells_case=True)
        rows = _columns(df)
        stage = begin(self._database, self._table, output, df.columns)
        if stage is None:
            _log.info("Batch %d is written already", output.batch_id)
            return
        nested = [n for n, each in enumerate(df.schema) if isinstance(each.dataType, _NESTED)]
        fitting = Fitting(df.columns, nested, replaces=_replaces_bad_values(df))
        tasks = rows.mapInArrow(_Load(self._database, stage, fitting), _LOADED).collect()
        _tell_bad_values(output, where, tasks)
        publish(self._database, stage, [Loaded(task.mark, task.records) for task in tasks])

    def __getstate__(self) -> dict[str, Any]:
        if self._has_password:
            raise ConfigError(
                "the URL of a PostgresSink has a password, which no checkpoint may hold",
                operation="pickle sink",
                hint="name a file that has it instead, on each host: ?passfile=/run/secrets/pgpass",
            )
        return self.__dict__


class _Load:
    """Task: copies the rows of its partition; a class, so that it pickles by name."""

    def __init__(self, database: Database, stage: Stage, fitting: Fitting) -> None:
        self._database = database
        self._stage = stage
        self._fitting = fitting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if len(batch))
        if (first := next(filled, None)) is None:
            return
        mark, fitting = secrets.token_hex(8), self._fitting
        try:
            rows = map(fitting, chain([first], filled))
            records = self._database.load(self._stage, mark, rows)
            told = records, fitting.replaced, fitting.first, ""
        except BadValueError as bad:  # nothing of this mark counts; Spark would only try it again
            told = 0, 1, str(bad), bad.hint
        columns = [pa.array([each]) for each in (mark, *told)]
        yield pa.record_batch(columns, names=["mark", "records", "bad", "text", "hint"])


def _columns(df: DataFrame) -> DataFrame:
    """Return the rows with columns of types that databases have.

    They are named by their positions: Spark takes dots and quotes in a name for its own.

    Raises:
        ConfigError: they have none for a column.
    """
    columns = []
    for position, field in enumerate(df.schema.fields):
        column = F.col(str(position))
        if isinstance(field.dataType, _NESTED):
            column = F.to_json(column, _JSON)
        elif not isinstance(field.dataType, _PLAIN):
            raise ConfigError(
                f"column {field.name} is {field.dataType.simpleString()}",
                operation="write batch",
                hint="cast it to a string or a number",
            )
        columns.append(column.alias(str(position)))
    return df.toDF(*map(str, range(len(columns)))).select(columns)


def _replaces_bad_values(df: DataFrame) -> bool:
    """Whether the session's settings say that values which a table cannot hold are replaced."""
    value = df.sparkSession.conf.get(SINKS_BAD_VALUES, None)
    conf = {} if value is None else {SINKS_BAD_VALUES: value}
    return StreamingSettings.from_conf(conf).bad_values == "replace"


def _tell_bad_values(output: OutputBatch, where: str, tasks: Sequence[Row]) -> None:
    """Warn of the values that were replaced.

    Raises:
        SinkError: one was not.
    """
    for task in tasks:
        if task.hint:
            raise SinkError(
                f"{task.text}, and the table cannot hold it; nothing of the batch is written",
                operation="write batch",
                path=where,
                ids={"output": output.output, "batch": output.batch_id},
                hint=task.hint,
            )
    if count := sum(task.bad for task in tasks):
        first = next(task.text for task in tasks if task.bad)
        _log.warning(
            "Batch %d of output %r: %d values that %s cannot hold were replaced; the first: %s",
            output.batch_id,
            output.output,
            count,
            where,
            first,
        )
