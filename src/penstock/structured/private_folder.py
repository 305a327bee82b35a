"""A private folder on the driver's host, by which the driver and the readers of a session talk.

Files are JSON, replaced as a whole; they last as long as the driver's process. Whoever cleans /tmp
may delete them under a program that lives long: a missing file is as one that was never written,
and the folder is made again.

Invariant: what is read was written by this user. Any user can create a folder that was deleted from
/tmp: so each use opens the folder, checks the owner of what it has opened, and reaches the files
through it.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TextIO, cast

from penstock.errors import ConfigError


class PrivateFolder:
    """The files.

    Args:
        path: the folder, which only this user may enter.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what a file holds, None without one.

        Raises:
            ConfigError: the folder is another user's.
        """
        try:
            with self._opened() as folder, _open(folder, name) as file:
                found: dict[str, Any] = json.load(file)
                return found
        except FileNotFoundError:
            return None

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Replace a file; raises as ``read``."""
        try:
            self._write(name, values)
        except FileNotFoundError:
            os.makedirs(self._path, 0o700, exist_ok=True)
            self._write(name, values)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists; raises as ``read``."""
        with suppress(FileNotFoundError), self._opened() as folder:
            os.remove(name, dir_fd=folder)

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        staged = f"{name}.{uuid.uuid4().hex}"
        with self._opened() as folder:
            with _open(folder, staged, "w") as file:
                json.dump(values, file)
            os.replace(staged, name, src_dir_fd=folder, dst_dir_fd=folder)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder, if it is this user's alone; raises FileNotFoundError without one."""
        try:
            folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except NotADirectoryError as error:  # or a symbolic link
            raise self._refusal("is no folder") from error
        try:
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                what = f"belongs to user {status.st_uid}, with mode {status.st_mode & 0o777:o}"
                raise self._refusal(what)
            yield folder
        finally:
            os.close(folder)

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(
            f"what is at the path of the private folder by which the driver and its readers talk"
            f" {what}: the folder was removed, and another program has created that",
            operation="open private folder",
            path=self._path,
            hint="start the program again; have whatever cleans the folder of temporary files"
            " (TMPDIR) keep penstock-structured-*",
        )


def _open(folder: int, name: str, mode: str = "r") -> TextIO:
    opener = partial(os.open, mode=0o600, dir_fd=folder)
    return cast(TextIO, open(name, mode, encoding="utf-8", opener=opener))
