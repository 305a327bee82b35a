"""Files that are not needed, and names that are not read. Pure: by name alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.tools.checks.checksums import main_name
from penstock.checkpoint.tools.findings import Finding

_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?", re.DOTALL)
_JAVA_LONG = re.compile(r"[+-]?[0-9]+")


def check_names(paths: Collection[str], *, is_penstock: bool) -> Iterator[Finding]:
    """Yield a finding for each file that is left over, or not named as an entry of its log."""
    known = set(paths)
    newest = _newest_entries(paths)
    for path in sorted(paths):
        folder, _, name = path.rpartition("/")
        if _TEMPORARY.fullmatch(name):
            yield _leftover(path, "it is a temporary file: its writer was killed, or is at work")
        elif name.endswith(".crc"):
            if not _main_files(folder, name) & known:
                entry = _entry_id(folder, main_name(name))
                is_next = entry is not None and entry > newest.get(folder, -1)
                yield _in_the_way(path) if is_next and not is_penstock else _orphan(path)
        elif folder in ("offsets", "commits") and parse_batch_id(name) is None:
            yield _odd_name(path, name)


def leftovers_in(paths: Collection[str]) -> set[str]:
    """Return the files of a query of Spark that no query needs: a copy leaves them out."""
    return {finding.path for finding in check_names(paths, is_penstock=False)}


def check_folders(folders: Collection[str], paths: Collection[str]) -> Iterator[Finding]:
    """Yield what is not a file and has the name of an entry to come, or of its checksum."""
    newest = _newest_entries(paths)
    for path in folders:
        log, _, name = path.rpartition("/")
        entry = _entry_id(log, main_name(name))
        if entry is not None and entry > newest.get(log, -1):
            yield Finding(
                "error",
                path,
                "it is not a file, in the place of an entry of a log",
                "the query fails when it writes that entry: it takes it for another query's"
                ' entry ("Concurrent update to the log ...")',
                "move it out of the checkpoint location",
            )


def _entry_id(folder: str, name: str) -> int | None:
    """Return the id of an entry of a log, by its name; None for files of no log."""
    if folder not in ("offsets", "commits") and not folder.startswith("sources/"):
        return None
    return parse_batch_id(name.removesuffix(".compact"))


def _newest_entries(paths: Collection[str]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        entry = _entry_id(folder, name)
        if entry is not None:
            newest[folder] = max(entry, newest.get(folder, -1))
    return newest


def _main_files(folder: str, name: str) -> set[str]:
    """Return the paths that a checksum file may belong to."""
    main = name.removesuffix(".crc")
    prefix = f"{folder}/" if folder else ""
    return {prefix + main, prefix + main.removeprefix(".")}


def _orphan(path: str) -> Finding:
    return _leftover(path, "it is a checksum whose file is gone")


def _in_the_way(path: str) -> Finding:
    return Finding(
        "error",
        path,
        "it is a checksum whose file is gone",
        "the query fails when it writes that entry: it takes the checksum for another query's"
        ' ("Multiple streaming queries are concurrently using ...")',
        "remove it",
    )


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
        "its name is not a batch id",
        "nothing reads it",
        "remove it when the query is stopped",
    )
