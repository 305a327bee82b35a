"""A partition's state in an SQLite database on the local disk: a copy that can be rebuilt.

Invariants:

1. ``origin`` holds the version of the rows. Rows and origin change in one transaction, so a process
   that is killed at any point leaves one version or the other, never a mixture.
2. The copy is unusable after a power cut, because nothing is synced: the storage is authoritative.
   So it is in a folder that is no longer used after a power cut (``LocalCopies``).

The page cache bounds the memory of an open database, regardless of its number of keys.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from penstock.errors import LocalCopyError
from penstock.state.delta import Entry
from penstock.state.layers import Layer

__all__ = ["Database", "Origin", "remove_database"]

_PAGE_CACHE_KB = 16 << 10
_ROWS_AT_A_TIME = 1000

_TABLES = """
CREATE TABLE IF NOT EXISTS state (
    key BLOB PRIMARY KEY, value BLOB NOT NULL, touched_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS origin (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    tip TEXT, until_ms INTEGER, keys INTEGER, layers TEXT
);
"""


@dataclass(frozen=True)
class Origin:
    """The version that a database holds: after delta ``tip``, None for no delta yet.

    ``layers`` are the layers of this version, the tip being the newest.
    """

    tip: str | None = None
    until_ms: int | None = None
    keys: int = 0
    layers: tuple[Layer, ...] = ()


class Database:
    """An open database. All methods raise LocalCopyError if the file or its disk fails."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connect()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def load(self, pieces: Iterable[bytes]) -> None:
        """Replace the content by a database file, given in pieces; empty if interrupted."""
        self.close()
        remove_database(self.path)
        part = f"{self.path}.part"
        with self._translated():
            with open(part, "wb") as target:
                target.writelines(pieces)
            os.replace(part, self.path)
        self._connect()

    def get(self, key: bytes) -> Entry | None:
        """Return a key's state."""
        query = "SELECT value, touched_ms FROM state WHERE key = ?"
        try:  # not _translated(), which would cost as much as the lookup
            row = self._connection.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return None if row is None else Entry(*row)

    def rows(self) -> Iterator[tuple[bytes, Entry]]:
        """Yield all keys and their state, in the order of the keys."""
        return self._select("ORDER BY key")

    def untouched_since(self, time_ms: int) -> Iterator[tuple[bytes, Entry]]:
        """Yield the keys that were last touched before that time, the oldest first."""
        return self._select("WHERE touched_ms < ? ORDER BY touched_ms, key", time_ms)

    def index_times(self) -> None:
        """Create the index of times, for ``untouched_since`` and ``oldest_ms``."""
        with self._translated():
            self._execute("CREATE INDEX IF NOT EXISTS touched ON state (touched_ms)")

    def oldest_ms(self) -> int | None:
        """Return the earliest time at which a key was last touched, None without keys."""
        with self._translated():
            oldest: int | None = self._execute("SELECT min(touched_ms) FROM state").fetchone()[0]
        return oldest

    def count(self) -> int:
        """Count the keys by reading all of them; ``origin.keys`` has the number of a version."""
        with self._translated():
            count: int = self._execute("SELECT count(*) FROM state").fetchone()[0]
        return count

    def advance(
        self, changes: Iterable[Iterable[tuple[bytes, Entry | None]]], origin: Origin
    ) -> None:
        """Apply changes, one set after the other, and set the new version, in one transaction."""
        with self._translated(), self._transaction():
            for some in changes:
                self._apply(some)
            row = (origin.tip, origin.until_ms, origin.keys, json.dumps(origin.layers))
            self._execute("REPLACE INTO origin VALUES (1, ?, ?, ?, ?)", row)
        self.origin = origin

    def _connect(self) -> None:
        with self._translated():
            self._connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            with self._translated():
                self._execute("PRAGMA synchronous = OFF")
                self._execute("PRAGMA journal_mode = TRUNCATE")  # rolls a killed transaction back
                self._execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KB}")
                self._connection.executescript(_TABLES)
                self.origin = self._read_origin()
        except BaseException:
            self._connection.close()
            raise

    def _apply(self, changes: Iterable[tuple[bytes, Entry | None]]) -> None:
        removed: list[tuple[bytes]] = []

        def kept() -> Iterator[tuple[bytes, bytes, int]]:
            for key, entry in changes:
                if entry is None:
                    removed.append((key,))
                else:
                    yield key, entry.value, entry.touched_ms

        self._connection.executemany(
            "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET value = excluded.value, touched_ms = excluded.touched_ms",
            kept(),
        )
        self._connection.executemany("DELETE FROM state WHERE key = ?", removed)

    def _select(self, clauses: str, *values: object) -> Iterator[tuple[bytes, Entry]]:
        query = f"SELECT key, value, touched_ms FROM state {clauses}"
        with self._translated():
            cursor = self._execute(query, values)
        with closing(cursor):
            while True:
                with self._translated():
                    rows = cursor.fetchmany(_ROWS_AT_A_TIME)
                if not rows:
                    return
                for key, value, touched_ms in rows:
                    yield key, Entry(value, touched_ms)

    def _read_origin(self) -> Origin:
        row = self._execute("SELECT tip, until_ms, keys, layers FROM origin").fetchone()
        if row is None:
            return Origin()
        tip, until_ms, keys, layers = row
        return Origin(tip, until_ms, keys, tuple(Layer(*layer) for layer in json.loads(layers)))

    def _execute(self, query: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(query, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> LocalCopyError:
        return LocalCopyError(
            "an executor's local copy of state cannot be used",
            operation="use local copy",
            path=self.path,
            hint="check that the disk of spark.local.dir has free space and works; the copy is "
            "created "
            "again from the checkpoint location",
        )


def remove_database(path: str) -> None:
    """Remove a database in any state.

    Its rollback journal is removed last: without the journal, an incomplete database would be taken
    for a complete one, while SQLite discards a journal without a database when it creates the next
    one.
    """
    for each in (path, f"{path}-journal", f"{path}.part"):
        with suppress(FileNotFoundError):
            os.unlink(each)
