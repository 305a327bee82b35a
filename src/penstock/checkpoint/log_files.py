"""Log files of any Spark from 2.1 on, read without loss and without validation.

    v1                                      v2 (Spark 4.2: sources have names)
    {"batchWatermarkMs":0,...,"conf":{}}    {"batchWatermarkMs":0,...,"sourceMetadataInfo":{}}
    {"clicks":{"r0-1":120}}                 orders:{"clicks":{"r0-1":120}}
    -                                       clicks:-

These functions accept everything that Spark's own classes accept, which is more than Spark writes:
leading zeros in the version, other line ends, missing or unknown fields, text after the JSON. The
strict logs (``OffsetLog``, ``CommitLog``) are built on them, and refuse any form that Spark does
not write. A value keeps every field and source of the file, in the file's order, also those of
later versions.

Pure. Source: Spark's OffsetSeqLog, OffsetMap, OffsetSeqMetadataV2, CommitLog, CommitMetadataV3 and
MetadataVersionUtil.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.checkpoint.log_format import MalformedLogError, parse_fields, parse_log

__all__ = [
    "NEWEST_COMMIT_VERSION",
    "NEWEST_OFFSET_VERSION",
    "CommitFile",
    "OffsetFile",
    "SourceLine",
    "parse_commit_file",
    "parse_offset_file",
]

NEWEST_OFFSET_VERSION, NEWEST_COMMIT_VERSION = 2, 3
"""The newest versions that Spark 4.3 writes."""

_NO_OFFSET = "-"
_NAMED_SOURCES = 2
"""The first version of the offset log in which each source's line begins with its name."""


class SourceLine(NamedTuple):
    """The offset of one source."""

    name: str | None
    """The source's name or number; None before version 2, where the line's index identifies it."""
    offset: str | None
    """Its offset as written, JSON for most sources; None if it was not part of the batch."""


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """An entry of the offset log."""

    version: int
    metadata: Mapping[str, Any] | None
    """The JSON object of the second line; None when that line is empty (Spark 2.1)."""
    sources: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class CommitFile:
    """An entry of the commit log."""

    version: int
    metadata: Mapping[str, Any]
    """The JSON object of the second line, empty when there is no second line."""


def parse_offset_file(data: bytes) -> OffsetFile:
    """Return an entry of the offset log.

    Raises:
        MalformedLogError: Spark could not read it either.
    """
    version, lines = parse_log(data)
    if not lines:
        raise MalformedLogError("Incomplete log file: metadata or offsets are missing")
    metadata = parse_fields(lines[0]) if lines[0].strip() else None
    parse = _parse_named if version >= _NAMED_SOURCES else _parse_placed
    return OffsetFile(version, metadata, tuple(map(parse, lines[1:])))


def parse_commit_file(data: bytes) -> CommitFile:
    """Return an entry of the commit log.

    Raises:
        MalformedLogError: Spark could not read it either.
    """
    version, lines = parse_log(data)
    return CommitFile(version, parse_fields(lines[0]) if lines else {})


def _parse_placed(line: str) -> SourceLine:
    return SourceLine(None, None if line == _NO_OFFSET else line)


def _parse_named(line: str) -> SourceLine:
    name, colon, offset = line.partition(":")
    if not colon:
        raise MalformedLogError(f"Log file was malformed: {line!r} names no source")
    return SourceLine(name, None if offset == _NO_OFFSET else offset)
