"""SQLite, for a program on one machine; ``staging`` has the protocol."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.structured.sinks.staging import (
    MARK,
    TOKENS,
    Newest,
    Stage,
    Target,
    in_utc,
    no_table,
    quoted,
)

__all__ = ["Sqlite"]

_WAIT_S = 60.0
"""One task at a time writes to a file; another one waits for so long."""


@dataclass(frozen=True, slots=True)
class Sqlite:
    """A file of SQLite, as ``staging.Database``."""

    path: str

    def find(self, table: str, application: str) -> Target:
        """See Database: SQLite does not tell upper case from lower case."""
        with self._transaction() as db:
            found = db.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
                "AND name = ? COLLATE NOCASE",
                (table,),
            ).fetchone()
        if found is None:
            raise no_table(table, file=self.path)
        return Target(None, found[0], application)

    def newest(self, target: Target) -> Newest:
        """See Database."""
        with self._transaction() as db:
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {TOKENS} (application TEXT NOT NULL, target TEXT "
                "NOT NULL, batch_id INTEGER NOT NULL, plan TEXT NOT NULL, attempt TEXT NOT NULL, "
                "PRIMARY KEY (application, target))"
            )
            return _newest(db, target)

    def columns(self, target: Target) -> list[str]:
        """See Database."""
        with self._transaction() as db:
            found = db.execute("SELECT name FROM pragma_table_info(?)", (target.table,))
            return [name for (name,) in found]

    def create_stage(self, stage: Stage) -> None:
        """See Database."""
        columns = ", ".join(map(quoted, stage.columns))
        with self._transaction() as db:
            db.execute(
                f"CREATE TABLE {quoted(stage.name)} AS "
                f"SELECT {columns}, '' AS {MARK} FROM {stage.target.quoted} WHERE 0"
            )

    def load(self, stage: Stage, mark: str, batches: Iterable[pa.RecordBatch]) -> int:
        """See Database."""
        values = ", ".join("?" for _ in stage.columns)
        insert = f"INSERT INTO {quoted(stage.name)} VALUES ({values}, '{mark}')"
        records = 0
        # A transaction for each batch: the next one may take Spark long, and one task writes at a
        # time. If the task fails, its mark is not returned, so the rows count nowhere.
        for batch in batches:
            with self._transaction() as db:
                records += db.executemany(insert, _rows(batch)).rowcount
        return records

    def publish(self, stage: Stage, marks: Sequence[str], records: int) -> None:
        """See Database."""
        target, columns = stage.target, ", ".join(map(quoted, stage.columns))
        staged = f"FROM {quoted(stage.name)} WHERE {MARK} IN (SELECT value FROM json_each(?))"
        of_tasks = (json.dumps(marks),)
        with self._transaction() as db:
            if _newest(db, target).batch_id >= stage.batch_id:
                return
            if db.execute(f"SELECT count(*) {staged}", of_tasks).fetchone() != (records,):
                return
            table = target.quoted
            db.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} {staged}", of_tasks)
            db.execute(
                f"INSERT OR REPLACE INTO {TOKENS} (application, target, batch_id, plan, attempt) "
                "VALUES (?, ?, ?, ?, ?)",
                (
                    target.application,
                    target.table,
                    stage.batch_id,
                    stage.output.plan,
                    stage.write,
                ),
            )

    def stages(self, target: Target) -> list[str]:
        """See Database."""
        with self._transaction() as db:
            found = db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, ?) = ?",
                (len(target.stage_prefix), target.stage_prefix),
            )
            return [name for (name,) in found]

    def drop_stages(self, target: Target, names: Sequence[str]) -> None:
        """See Database."""
        with self._transaction() as db:
            for name in names:
                db.execute(f"DROP TABLE IF EXISTS {quoted(name)}")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            # Without "rw", a file that does not exist would be made.
            uri = f"{Path(self.path).as_uri()}?mode=rw"
            db = sqlite3.connect(uri, timeout=_WAIT_S, isolation_level=None, uri=True)
        except sqlite3.OperationalError as error:
            raise ConfigError(
                f"the database cannot be opened: {error}",
                operation="write batch",
                path=self.path,
                hint="give the path of an existing file of SQLite, which tasks can write to",
            ) from error
        try:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        finally:
            db.close()  # which rolls back what is not committed


def _newest(db: sqlite3.Connection, target: Target) -> Newest:
    row = db.execute(
        f"SELECT batch_id, plan, attempt FROM {TOKENS} WHERE application = ? AND target = ?",
        (target.application, target.table),
    ).fetchone()
    return Newest() if row is None else Newest(*row)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    columns = [in_utc(column).to_pylist() for column in batch.columns]
    return zip(*(map(_plain, values) for values in columns), strict=True)


def _plain(value: Any) -> Any:
    """Return a value that SQLite has a type for; times and decimals are text."""
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
