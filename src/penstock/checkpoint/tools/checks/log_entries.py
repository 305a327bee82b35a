"""Whether single files of the logs can be read, and say what Spark would have written. Pure.

An error is what Spark's own classes, or the source that reads it, refuse. What they read by taking
a default or dropping a field is a warning: it is not as any Spark writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from penstock.checkpoint.commit_log import CommitLog
from penstock.checkpoint.log_files import (
    NEWEST_COMMIT_VERSION,
    NEWEST_OFFSET_VERSION,
    parse_commit_file,
    parse_offset_file,
)
from penstock.checkpoint.log_format import (
    MalformedLogError,
    check_version,
    is_time_ms,
    parse_fields,
    parse_json,
    parse_log,
)
from penstock.checkpoint.metadata_log import MetadataLog
from penstock.checkpoint.offset_log import OffsetLog
from penstock.checkpoint.tools.checks.source_logs import batch_ids_of
from penstock.checkpoint.tools.findings import Finding
from penstock.checkpoint.tools.offsets import entry_of_log
from penstock.checkpoint.tools.operators import parse_operator_info
from penstock.storage import Storage

EntryChecks = Mapping[str, Callable[[str, bytes], Iterator[Finding]]]
"""What checks the entries of a log, by its folder."""

_SOURCE_VERSION = 1
"""The newest version that Spark 4.3 writes."""

_OFFSET_FIELDS = {
    1: {"batchWatermarkMs", "batchTimestampMs", "conf"},
    2: {"batchWatermarkMs", "batchTimestampMs", "conf", "sourceMetadataInfo"},
}
_COMMIT_FIELDS = {
    1: {"nextBatchWatermarkMs"},
    2: {"nextBatchWatermarkMs", "stateUniqueIds"},
    3: {"nextBatchWatermarkMs", "stateUniqueIds", "sinkMetadataMap"},
}
_COMMIT_REQUIRED = {3: ("sinkMetadataMap",)}
"""What Spark takes no default for."""
_OPTIONAL = {"stateUniqueIds", "sourceMetadataInfo"}
"""What Spark leaves out when there is none."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NOT_STARTING = "the query fails when it reads this file, at its start at the latest"
_NEWER = "newer version"
"""In the message of ``check_version``."""
_RESTORE = "restore the file from a backup"
_NO_MARK = "it was cut off after its version: every Spark writes a line of JSON there"


_JSON_BEGINS = ("{", "[", '"')
"""What can be cut off: a text without these may be a source's own form."""


def spark_checks(
    file_sources: Collection[str] = (), json_sources: Collection[str] = ()
) -> EntryChecks:
    """Return the checks of what a query of Spark reads, with these sources of files, and of JSON.

    The offset of any other source may be text of its own.
    """
    return {
        "offsets": partial(
            _check_offsets, file_sources=file_sources, json_sources={*file_sources, *json_sources}
        ),
        "commits": _check_commit,
    }


def torn_checks() -> EntryChecks:
    """Return the checks of what a query of Spark reads that find only what was cut off."""
    return {"offsets": _check_offsets_end, "commits": _check_commit_end}


def penstock_checks(storage: Storage) -> EntryChecks:
    """Return the checks of what a driver of penstock reads: its own logs judge."""
    return {
        "offsets": partial(_check_strictly, OffsetLog(storage)),
        "commits": partial(_check_strictly, CommitLog(storage)),
    }


def is_torn(checks: EntryChecks, path: str, data: bytes) -> bool:
    """Whether an entry of a log cannot be read by any release: it was cut off, or overwritten."""
    findings = checks[path.partition("/")[0]](path, data)
    return any(each.severity == "error" and not is_of_newer_version(each) for each in findings)


def is_of_newer_version(finding: Finding) -> bool:
    """Whether an entry is sound, and only a later release reads it."""
    return _NEWER in finding.what


def check_operator_info(path: str, data: bytes) -> Iterator[Finding]:
    """Yield what is wrong with what an operator says of itself."""
    try:
        parse_operator_info(data)
    except MalformedLogError as error:
        yield _unreadable(path, error, f"{_RESTORE}; it only changes with the query's plan")


def _check_strictly(log: MetadataLog[Any], path: str, data: bytes) -> Iterator[Finding]:
    try:
        log.parse(data)
    except MalformedLogError as error:
        batch_id = int(path.rpartition("/")[2])
        fix = log.hint_for_damage(batch_id, error.hint)
        yield _error(path, str(error), "the program does not start", fix)


def _check_offsets_end(path: str, data: bytes) -> Iterator[Finding]:
    try:
        check_version(parse_log(data).version, NEWEST_OFFSET_VERSION)
        found = parse_offset_file(data)
    except MalformedLogError as error:
        yield _unreadable(path, error, _RESTORE)
        return
    if not found.sources or any(_is_cut_off(line.offset or "") for line in found.sources):
        yield _error(path, "it was cut off", _NOT_STARTING, _RESTORE)


def _is_cut_off(offset: str) -> bool:
    try:
        if offset.startswith(_JSON_BEGINS):
            json.JSONDecoder().raw_decode(offset)
    except (ValueError, RecursionError):
        return True
    return False


def _check_commit_end(path: str, data: bytes) -> Iterator[Finding]:
    try:
        check_version(parse_commit_file(data).version, NEWEST_COMMIT_VERSION)
    except MalformedLogError as error:
        yield _unreadable(path, error, _RESTORE)
        return
    if not parse_log(data).lines:
        yield _error(path, _NO_MARK, _NOT_STARTING, _RESTORE)


def _check_offsets(
    path: str, data: bytes, file_sources: Collection[str], json_sources: Collection[str]
) -> Iterator[Finding]:
    """Yield what is wrong with an entry of the offset log."""
    try:
        check_version(parse_log(data).version, NEWEST_OFFSET_VERSION)
        found = parse_offset_file(data)
        metadata = found.metadata or {}
        if found.metadata is None and found.version != 1:
            raise MalformedLogError("Incomplete log file: metadata is missing")
        for field in ("batchWatermarkMs", "batchTimestampMs"):
            _check_time(metadata, field)
        _check_conf(metadata.get("conf", {}))
        for place, line in enumerate(found.sources):
            source = str(place) if line.name is None else line.name
            offset: object = line.offset
            if source in json_sources or (line.offset or "").startswith(_JSON_BEGINS):
                offset = _check_json(line.offset, f"the offset of source {source}")
            if source in file_sources and line.offset is not None and entry_of_log(offset) is None:
                raise MalformedLogError(
                    f"Log file was malformed: the offset of file source {source} is {line.offset},"
                    " which names no entry of its log (logOffset)"
                )
    except MalformedLogError as error:
        yield _unreadable(path, error, _RESTORE)
        return
    if not found.sources:
        what = "it holds no source's offset: the file was cut off"
        yield _error(path, what, _NOT_STARTING, _RESTORE)
    elif found.metadata is not None:  # Spark 2.1 wrote none
        yield from _odd_fields(path, metadata, _OFFSET_FIELDS[found.version])


def _check_commit(path: str, data: bytes) -> Iterator[Finding]:
    """Yield what is wrong with an entry of the commit log."""
    try:
        found = parse_commit_file(data)
        check_version(found.version, NEWEST_COMMIT_VERSION)
        _check_time(found.metadata, "nextBatchWatermarkMs")
        for field in _COMMIT_REQUIRED.get(found.version, ()):
            if not isinstance(found.metadata.get(field), Mapping):
                raise MalformedLogError(f"Log file was malformed: it lacks {field}")
    except MalformedLogError as error:
        yield _unreadable(path, error, _RESTORE)
        return
    if not parse_log(data).lines:
        fix = (
            f"{_RESTORE}; without one, remove it if its batch is the newest: that batch runs again"
        )
        yield Finding("warning", path, _NO_MARK, "Spark takes 0 for the watermark", fix)
    elif found.metadata or found.version != 1:  # before Spark 2.4 it was empty
        yield from _odd_fields(path, found.metadata, _COMMIT_FIELDS[found.version])


def check_metadata(path: str, data: bytes) -> Iterator[Finding]:
    """Yield what is wrong with the metadata file."""
    try:
        fields = parse_fields(data.decode())
        if not _UUID.fullmatch(str(fields.get("id"))):
            raise MalformedLogError(f"Log file was malformed: {fields} holds no UUID as its id")
    except (MalformedLogError, UnicodeDecodeError) as error:
        fix = f"{_RESTORE}; the query's id is also in its progress reports"
        yield _error(path, str(error), _NOT_STARTING, fix)


def check_source_log(path: str, data: bytes, *, is_file_source: bool) -> Iterator[Finding]:
    """Yield what is wrong with a file that a source keeps for itself.

    Those of Spark's own sources are a version and lines of JSON; Kafka's begins with a zero byte.
    """
    fix = f"{_RESTORE}; without one, start with a new checkpoint location"
    try:
        version, lines = parse_log(data.removeprefix(b"\0"))
        if is_file_source:
            check_version(version, _SOURCE_VERSION)
        for number, line in enumerate(lines):
            entry = _check_json(line, f"entry {number}")
            if is_file_source and not _names_a_file(entry, batch_ids_of(path)):
                raise MalformedLogError(
                    f"Log file was malformed: {line!r} names no file of this entry (batchId)"
                )
    except MalformedLogError as error:
        yield _unreadable(path, error, fix)


def _names_a_file(entry: Any, batch_ids: range) -> bool:
    return (
        isinstance(entry, Mapping)
        and isinstance(entry.get("path"), str)
        and type(entry.get("timestamp")) is int
        and type(entry.get("batchId")) is int
        and entry["batchId"] in batch_ids
    )


def _check_time(fields: Mapping[str, Any], name: str) -> None:
    if name in fields and not is_time_ms(fields[name]):
        raise MalformedLogError(f"Log file was malformed: {name} is {fields[name]!r}, no time")


def _check_conf(conf: Any) -> None:
    if not isinstance(conf, Mapping) or not all(isinstance(v, str) for v in conf.values()):
        raise MalformedLogError(f"Log file was malformed: conf is {conf!r}, not text to text")


def _check_json(text: str | None, what: str) -> Any:
    try:
        return None if text is None else parse_json(text)
    except (ValueError, RecursionError) as error:
        raise MalformedLogError(f"Log file was malformed: {what} is not JSON ({error})") from error


def _odd_fields(
    path: str, fields: Mapping[str, Any], expected: Collection[str]
) -> Iterator[Finding]:
    missing = sorted(set(expected) - set(fields) - _OPTIONAL)
    unknown = sorted(set(fields) - set(expected))
    if missing or unknown:
        parts = (
            f"lacks {', '.join(missing)}" if missing else "",
            f"has unknown {', '.join(unknown)}" if unknown else "",
        )
        yield Finding(
            "warning",
            path,
            f"it {' and '.join(filter(None, parts))}",
            "Spark takes a default for what is missing and drops what it does not know; the file"
            " was altered, or written by a release that adds meaning",
            "compare with the neighbouring batch; restore the file from a backup if it was altered",
        )


def _unreadable(path: str, error: MalformedLogError, fix: str) -> Finding:
    is_newer = _NEWER in str(error)
    return _error(path, str(error), _NOT_STARTING, error.hint if is_newer else fix)


def _error(path: str, what: str, meaning: str, fix: str) -> Finding:
    return Finding("error", path, what, meaning, fix)
