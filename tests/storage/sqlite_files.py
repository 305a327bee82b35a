"""A file manager as a program may have one: files are rows of an SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from penstock.errors import AlreadyExistsError, ConfigError, NotFoundError, StorageError
from penstock.storage import CheckpointFileManager, Entry, check_path


class SqliteFiles(CheckpointFileManager):
    """The files under a URL such as ``sqlite:///data/checkpoints.db/words``."""

    def __init__(self, url: str) -> None:
        scheme, colon, rest = url.partition("://")
        path, dot, root = rest.partition(".db")
        if (scheme, colon, dot) != ("sqlite", "://", ".db"):
            raise ConfigError(f"{url!r} names no database", operation="open", hint="sqlite://X.db")
        self.url = url
        self._database = path + dot
        self._root = root.strip("/")
        self._run("CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, data BLOB)")

    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        try:
            content = bytes(memoryview(data).cast("B"))
        except TypeError as error:
            raise ConfigError(f"no bytes: {data!r}", operation="create", path=path) from error
        word = "REPLACE" if overwrite else "INSERT"
        try:
            self._run(f"{word} INTO files VALUES (?, ?)", self._locate(path), content)
        except sqlite3.IntegrityError as error:
            raise AlreadyExistsError(
                "the name is taken", operation="create", path=path, hint="list the folder"
            ) from error

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        found = self._run("SELECT data FROM files WHERE path = ?", self._locate(path))
        if not found:
            raise NotFoundError("the file does not exist", operation="read", path=path)
        return bytes(found[0][0])[start:end]

    def list(self, folder: str = "") -> Sequence[Entry]:
        prefix = self._locate(folder) + "/" if folder else self._root and f"{self._root}/"
        rows = self._run(
            "SELECT substr(path, ?), length(data) FROM files WHERE substr(path, 1, ?) = ?",
            len(prefix) + 1,
            len(prefix),
            prefix,
        )
        entries = {}
        for path, size in rows:
            name, slash, _ = path.partition("/")
            entries[name] = Entry(name, is_folder=True) if slash else Entry(name, size)
        return sorted(entries.values())

    def delete(self, path: str) -> None:
        self._run("DELETE FROM files WHERE path = ?", self._locate(path))

    def exists(self, path: str) -> bool:
        return bool(self._run("SELECT 1 FROM files WHERE path = ?", self._locate(path)))

    def uri(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{check_path(path)}"

    def _locate(self, path: str) -> str:
        return "/".join(filter(None, (self._root, check_path(path))))

    def _run(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(self._database, timeout=60)) as base, base:
                return base.execute(statement, values).fetchall()
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise StorageError("the database failed", operation=statement) from error
