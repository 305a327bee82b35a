"""A private folder on the driver's host, by which the driver and the readers of a session talk.

Files are JSON, replaced as a whole; they last as long as the driver's process. Whoever cleans /tmp
may delete them under a program that lives long: a missing file is as one that was never written,
and the folder is made again.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

__all__ = ["PrivateFolder"]


class PrivateFolder:
    """The files.

    Args:
        path: the folder, which only this user may enter.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what a file holds, None without one."""
        try:
            with open(self._of(name), encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
                return found
        except FileNotFoundError:
            return None

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Replace a file."""
        try:
            self._write(name, values)
        except FileNotFoundError:
            os.makedirs(self._path, 0o700, exist_ok=True)
            self._write(name, values)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            os.remove(self._of(name))

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        staged = self._of(f"{name}.{uuid.uuid4().hex}")
        with open(staged, "w", encoding="utf-8") as file:
            json.dump(values, file)
        os.replace(staged, self._of(name))

    def _of(self, name: str) -> str:
        return os.path.join(self._path, name)
