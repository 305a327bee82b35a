"""The folders of the state store and the names of its files.

    <operator>/versions/<time>.version        one for each batch of the operator: its commit
    <operator>/<partition>/<time>-<run>.delta      changes and output of a batch
    <operator>/<partition>/<time>-<run>.pack       several deltas, merged
    <operator>/<partition>/<time>-<run>.snapshot   all state, as an SQLite database

``time`` is the batch's in milliseconds, 20 digits, 0 for the initial state; ``run`` names the run
of the driver that wrote the file. Packs and snapshots have the time of the batch that wrote them in
their names, and hold the changes before it.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

__all__ = [
    "FileName",
    "new_run",
    "parse_name",
    "parse_version",
    "partition_folder",
    "version_path",
    "versions_folder",
]

_NAME = re.compile(r"(\d{20})-([0-9a-f]{8})\.(delta|pack|snapshot)")
_VERSION = re.compile(r"(\d{20})\.version")


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a file in a partition's folder."""

    time_ms: int
    run: str
    kind: str

    def __str__(self) -> str:
        return f"{self.time_ms:020d}-{self.run}.{self.kind}"


def new_run() -> str:
    """Return a unique name for a run of the driver."""
    return secrets.token_hex(4)


def parse_name(name: str) -> FileName | None:
    """Return the parts of a partition file's name, None for any other name."""
    found = _NAME.fullmatch(name)
    return FileName(int(found[1]), found[2], found[3]) if found else None


def partition_folder(operator: str, partition: int) -> str:
    """Return the folder of a partition's files."""
    return f"{operator}/{partition:05d}"


def versions_folder(operator: str) -> str:
    """Return the folder of an operator's versions."""
    return f"{operator}/versions"


def version_path(operator: str, time_ms: int) -> str:
    """Return the path of a version."""
    return f"{versions_folder(operator)}/{time_ms:020d}.version"


def parse_version(name: str) -> int | None:
    """Return the time in a version's file name, None for any other name."""
    found = _VERSION.fullmatch(name)
    return int(found[1]) if found else None
