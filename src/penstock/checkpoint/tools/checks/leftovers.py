"""Files that are not needed, and names that are not read. Pure: by name alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.tools.findings import Finding

__all__ = ["check_names"]

_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?", re.DOTALL)
_JAVA_LONG = re.compile(r"[+-]?[0-9]+")


def check_names(paths: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each file that is left over, or not named as an entry of its log."""
    known = set(paths)
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        if _TEMPORARY.fullmatch(name):
            yield _leftover(path, "it is a temporary file: its writer was killed, or is at work")
        elif name.endswith(".crc"):
            if not _main_files(folder, name) & known:
                yield _leftover(path, "it is a checksum whose file is gone")
        elif folder in ("offsets", "commits") and parse_batch_id(name) is None:
            yield _odd_name(path, name)


def _main_files(folder: str, name: str) -> set[str]:
    """Return the paths that a checksum file may belong to."""
    main = name.removesuffix(".crc")
    prefix = f"{folder}/" if folder else ""
    return {prefix + main, prefix + main.removeprefix(".")}


def _leftover(path: str, what: str) -> Finding:
    return Finding("note", path, what, "nothing reads it", "remove it when the query is stopped")


def _odd_name(path: str, name: str) -> Finding:
    if _JAVA_LONG.fullmatch(name):
        return Finding(
            "error",
            path,
            "its name is another spelling of a batch id",
            "Spark takes it for an entry and does not find it under its plain name",
            "move it out of the checkpoint location",
        )
    return Finding(
        "note",
        path,
        "its name is no batch id",
        "nothing reads it",
        "remove it when the query is stopped",
    )
