"""PostgreSQL; ``staging`` has the protocol. Needs the extra ``postgres`` (psycopg)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO

import psycopg
import pyarrow as pa
from psycopg import errors
from pyarrow import csv

from penstock.errors import ConfigError, SinkError
from penstock.structured.sinks.staging import (
    MARK,
    TOKENS,
    Newest,
    Stage,
    Target,
    quoted,
)
from penstock.structured.sinks.values import BadValueError

_CSV = csv.WriteOptions(include_header=False, quoting_style="all_valid")
"""A null is nothing, and an empty text is ``""``: as COPY reads them."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A database of PostgreSQL, as ``staging.Database``."""

    url: str = field(repr=False)
    """Of libpq, perhaps with a password."""

    def find(self, table: str, application: str) -> Target:
        """See Database: where the search path of its schemas has it."""
        with self._connect() as db:
            found = db.execute(
                "SELECT nspname, relname FROM pg_class c JOIN pg_namespace n "
                "ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
                (".".join(map(quoted, table.split("."))),),
            ).fetchone()
        if found is None:
            raise ConfigError(
                f"there is no table {table}",
                operation="write batch",
                ids={"table": table},
                hint="create it, with the columns of the DataFrame",
            )
        return Target(found[0], found[1], application)

    def newest(self, target: Target) -> Newest:
        """See Database."""
        tokens = target.beside(TOKENS)
        with self._connect() as db:
            _prepare(db, tokens)
            row = db.execute(
                f"SELECT batch_id, plan, attempt FROM {_literal(tokens)} "
                "WHERE application = %s AND target = %s",
                (target.application, target.table),
            ).fetchone()
        return Newest() if row is None else Newest(row[0], row[1] or "", row[2] or "")

    def columns(self, target: Target) -> list[str]:
        """See Database."""
        with self._connect() as db:
            found = db.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) "
                "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                (target.quoted,),
            ).fetchall()
        return [name for (name,) in found]

    def create_stage(self, stage: Stage) -> None:
        """See Database. It is not logged: ``publish`` sees whether it was emptied."""
        columns = ", ".join(map(quoted, stage.columns))
        with self._connect() as db:
            db.execute(
                f"CREATE UNLOGGED TABLE {_stage(stage)} AS SELECT {columns}, ''::text AS {MARK} "
                f"FROM {stage.target.quoted} WITH NO DATA"
            )

    def load(self, stage: Stage, mark: str, batches: Iterable[pa.RecordBatch]) -> int:
        """See Database."""
        records = 0
        with self._transaction("timezone", "UTC") as db, db.cursor() as cursor:
            try:
                with cursor.copy(f"COPY {_stage(stage)} FROM STDIN (FORMAT csv)") as copy:
                    for batch in batches:
                        records += len(batch)
                        copy.write(_as_csv(batch, mark))
            except psycopg.DataError as error:
                raise _refused_by_column(error) from None
            copied = cursor.rowcount
        if copied != records:
            raise SinkError(
                f"{records} rows were sent, and {copied} copied",
                operation="write batch",
                ids={"table": stage.target.table, "stage": stage.name},
                hint="report this, with the rows; nothing of them was written",
            )
        return records

    def publish(self, stage: Stage, marks: Sequence[str], records: int) -> None:
        """See Database. It is one statement: a driver that stops in it holds no lock.

        So it sets for itself that it is durable when it has returned.
        """
        target = stage.target
        columns = _literal(", ".join(map(quoted, stage.columns)))
        table, tokens = _literal(target.quoted), _literal(target.beside(TOKENS))
        staged = f"FROM {_literal(_stage(stage))} WHERE {MARK} = ANY(%(marks)s)"
        with self._connect() as db:
            db.execute(
                "WITH staged AS (SELECT count(*) AS records, "
                f"set_config('synchronous_commit', 'on', true) {staged}), newest AS ("
                f"INSERT INTO {tokens} AS known "
                "(application, target, batch_id, plan, attempt) "
                "SELECT %(application)s, %(target)s, %(batch)s, %(plan)s, %(write)s FROM staged "
                "WHERE records = %(records)s ON CONFLICT (application, target) DO UPDATE "
                "SET batch_id = excluded.batch_id, plan = excluded.plan, "
                "attempt = excluded.attempt "
                "WHERE known.batch_id < excluded.batch_id "
                "RETURNING 1) "
                f"INSERT INTO {table} ({columns}) SELECT {columns} {staged} "
                "AND EXISTS (SELECT 1 FROM newest)",
                {
                    "marks": [*marks],
                    "application": target.application,
                    "target": target.table,
                    "batch": stage.batch_id,
                    "plan": stage.output.plan,
                    "write": stage.write,
                    "records": records,
                },
            )

    def stages(self, target: Target) -> list[str]:
        """See Database."""
        with self._connect() as db:
            found = db.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s) AND "
                "relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s)",
                (target.stage_prefix, target.schema),
            ).fetchall()
        return [name for (name,) in found]

    def drop_stages(self, target: Target, names: Sequence[str]) -> None:
        """See Database."""
        for name in names:
            with suppress(errors.LockNotAvailable), self._transaction("lock_timeout", "1s") as db:
                db.execute(f"DROP TABLE IF EXISTS {target.beside(name)}")

    @contextmanager
    def _connect(self) -> Iterator[psycopg.Connection]:
        """Connect for statements that are transactions of their own; times are in UTC.

        What records depend on is set in their transaction, too: behind a pooler each transaction
        may have another session. Text is sent as UTF-8, whatever the database has and the
        environment says.
        """
        with psycopg.connect(self.url, autocommit=True, client_encoding="utf8") as db:
            db.execute("SET timezone = 'UTC'")
            db.execute("SET default_transaction_isolation = 'read committed'")
            yield db

    @contextmanager
    def _transaction(self, setting: str, value: str) -> Iterator[psycopg.Connection]:
        """Connect for one transaction, in which a setting has a value."""
        with self._connect() as db, db.transaction():
            db.execute("SELECT set_config(%s, %s, true)", (setting, value))
            yield db


def _prepare(db: psycopg.Connection, tokens: str) -> None:
    """Create the table of tokens, unless it exists."""
    if db.execute("SELECT to_regclass(%s)", (tokens,)).fetchone() == (None,):
        # Of two that create it at once, one may find any part of it there: its name, the type of
        # its rows, or their entries in the catalogue.
        with suppress(errors.DuplicateTable, errors.DuplicateObject, errors.UniqueViolation):
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {tokens} (application text, target text, batch_id "
                "bigint NOT NULL, plan text NOT NULL, attempt text NOT NULL, "
                "PRIMARY KEY (application, target))"
            )


def _refused_by_column(error: psycopg.DataError) -> BadValueError:
    """Return what the database said of a value that its column cannot hold."""
    lines = (error.diag.context or "").splitlines()
    place = next((line.partition(", ")[2] for line in lines if line.startswith("COPY ")), "")
    return BadValueError(
        f"{error.diag.message_primary} ({place or 'the row is not known'})",
        "alter the column, or cast or cut the values in the DataFrame; the line counts the rows "
        "of a task",
    )


def _literal(text: str) -> str:
    """Return text for a statement with parameters, in which % begins one."""
    return text.replace("%", "%%")


def _stage(stage: Stage) -> str:
    return stage.target.beside(stage.name)


def _as_csv(batch: pa.RecordBatch, mark: str) -> memoryview:
    columns = [*map(_as_text, batch.columns), pa.repeat(mark, len(batch))]
    into = BytesIO()
    csv.write_csv(pa.table(columns, names=[*map(str, range(len(columns)))]), into, _CSV)
    return into.getbuffer()


def _as_text(column: pa.Array) -> pa.Array:
    """Return bytes as PostgreSQL writes them, instants in UTC, and other columns as they are."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us"))
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return column
    return pa.array(
        [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()],
        pa.string(),
    )
