"""State stores by the names of their files, whose content is the state store's own. Pure.

    state/<operator>/<partition>[/<store>]/
        <version>.delta, <version>.snapshot          Spark's HDFSBackedStateStoreProvider
        <version>.changelog, <version>.zip           Spark's RocksDB; SSTs/ holds the zips' tables
        <version>_<id>.changelog, <version>_<id>.zip   with checkpoint ids (state format 2)

Batch N begins from version N and leaves version N + 1. A version can be loaded from the
newest snapshot that is not after it and the deltas (changelogs) from there on; version 0 is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.checkpoint.batch_ids import find_gaps
from penstock.storage import FileInfo

_PATH = re.compile(r"state/([^/]+)/(\d+)(?:/([^/]+))?/([^/]+)")
_SPARK_FILE = re.compile(r"(\d+)(?:_([\w-]+))?\.(delta|snapshot|changelog|zip)")
_FORMATS = {
    "delta": "HDFS-backed",
    "snapshot": "HDFS-backed",
    "changelog": "RocksDB",
    "zip": "RocksDB",
}
WHOLE = ("snapshot", "zip")
"""Kinds of files that hold a version without any other."""


@dataclass(frozen=True, slots=True, order=True)
class StateFile:
    """A file of a store: ``kind`` is its suffix, ``checkpoint_id`` what Spark may add."""

    version: int
    kind: str
    path: str
    size: int
    checkpoint_id: str | None = None


@dataclass(frozen=True, slots=True)
class StateStore:
    """One store of one partition of an operator; ``files`` by version."""

    partition: int
    name: str
    files: tuple[StateFile, ...]


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The stores of an operator; ``format`` says whose they are."""

    operator: str
    format: str
    stores: tuple[StateStore, ...]
    versions: tuple[int, ...]
    """What all stores together know of, ascending."""
    files: int
    size_bytes: int
    """Of everything below the operator's folder, tables and metadata too."""


def group_state(files: Mapping[str, FileInfo]) -> tuple[OperatorState, ...]:
    """Return the operators whose state is among the files of a location, by number."""
    below: dict[str, list[FileInfo]] = {}
    for path, info in files.items():
        parts = path.split("/")
        if parts[0] == "state" and len(parts) > 2:
            below.setdefault(parts[1], []).append(info)
    return tuple(_operator(name, below[name]) for name in sorted(below, key=_number_first))


def parse_version(name: str) -> tuple[int, str] | None:
    """Return the version and the kind of a state file of Spark, by its name; None for others."""
    found = _SPARK_FILE.fullmatch(name)
    return None if found is None else (int(found[1]), found[3])


def first_whole(store: StateStore, version: int) -> int:
    """Return the newest version up to that one that a file holds as a whole; 0 is empty."""
    whole = (each.version for each in store.files if each.kind in WHOLE)
    return max((each for each in whole if each <= version), default=0)


def missing_files(store: StateStore, version: int) -> str | None:
    """Name the files without which a version cannot be loaded; None if it can."""
    first = first_whole(store, version)
    steps = {each.version for each in store.files if first < each.version <= version}
    gaps = find_gaps({first, *steps, version + 1})
    if not gaps:
        return None
    suffix = _step_suffix(store.files)
    begin, end = gaps[0][0], gaps[-1][-1]
    return f"{begin}.{suffix}" if begin == end else f"{begin}.{suffix} to {end}.{suffix}"


def _step_suffix(files: Iterable[StateFile]) -> str:
    """Return the suffix of what a store writes for each version."""
    kinds = {each.kind for each in files}
    return next((kind for kind in ("changelog", "zip") if kind in kinds), "delta")


def _operator(name: str, files: list[FileInfo]) -> OperatorState:
    stores: dict[tuple[int, str], list[StateFile]] = {}
    formats = set()
    for info in files:
        found = _PATH.fullmatch(info.path)
        if found is None:
            continue
        if spark := _SPARK_FILE.fullmatch(found[4]):
            formats.add(_FORMATS[spark[3]])
            file = StateFile(int(spark[1]), spark[3], info.path, info.size, spark[2])
            stores.setdefault((int(found[2]), found[3] or "default"), []).append(file)
    versions = {each.version for found_files in stores.values() for each in found_files}
    return OperatorState(
        operator=name,
        format=" and ".join(sorted(formats)) or "unknown",
        stores=tuple(StateStore(*key, tuple(sorted(stores[key]))) for key in sorted(stores)),
        versions=tuple(sorted(versions)),
        files=len(files),
        size_bytes=sum(info.size for info in files),
    )


def _number_first(name: str) -> tuple[bool, int, str]:
    return (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)
