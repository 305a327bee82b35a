"""The offset log: the input of each batch, written before it runs.

    v1
    {"batchWatermarkMs":0,"batchTimestampMs":1795229815446,"conf":{"spark.sql.shuffle.partitions":"2"}}
    {"clicks":{"r0-1":120}}
    -

The version is followed by the batch's metadata and one line for each source: the end offset as
JSON, or "-" for a source that is not part of the batch. Source: Spark's OffsetSeqLog,
OffsetSeqMetadata.

``conf`` keeps its order, so an entry that Spark wrote is written back byte by byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.log_files import parse_offset_file
from penstock.checkpoint.log_format import (
    MalformedLogError,
    check_fields,
    check_version,
    dump_json,
    is_time_ms,
    parse_json,
)
from penstock.checkpoint.metadata_log import MetadataLog
from penstock.checkpoint.rollback import rollback_hint
from penstock.errors import ConfigError, RecoveryMismatchError
from penstock.storage import Storage

_NO_OFFSET = "-"
_FIELDS = ("batchWatermarkMs", "batchTimestampMs", "conf")


@dataclass(frozen=True, slots=True)
class OffsetSeq:
    """The input of a batch.

    ``batch_timestamp_ms`` is the batch's time and ``watermark_ms`` its event-time watermark, both
    in milliseconds since the epoch. ``conf`` holds the settings that must not change between a
    batch and its re-run. ``sources`` has, for each source in the program's order, its end offset as
    one line of JSON, or None if it is not part of the batch.

    Raises ConfigError for values that could not be read back unchanged.
    """

    batch_timestamp_ms: int
    watermark_ms: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        problem = _find_problem(self)
        if problem is not None:
            raise ConfigError(
                problem,
                operation="build offsets of a batch",
                hint="times are in milliseconds, conf maps text to text, each source's offset is"
                " one line of JSON or None",
            )


class OffsetLog(MetadataLog[OffsetSeq]):
    """The offset log in ``folder`` of a storage, in Spark's format v1."""

    def __init__(self, storage: Storage, folder: str = "offsets") -> None:
        super().__init__(storage, folder)

    def check_sources(self, batch_id: int, entry: OffsetSeq, source_count: int) -> None:
        """Check that an entry has ``source_count`` sources.

        Raises RecoveryMismatchError if it has another number.
        """
        if len(entry.sources) != source_count:
            raise RecoveryMismatchError(
                f"There are [{len(entry.sources)}] sources in the checkpoint offsets and now there"
                f" are [{source_count}] sources requested by the program. Cannot continue.",
                operation="read offsets",
                path=self._storage.uri(self._path(batch_id)),
                ids={"batch_id": batch_id},
                hint="run the program with its earlier sources, or with a new checkpoint location",
            )

    def hint_for_damage(self, batch_id: int, usual: str) -> str:
        """See MetadataLog.hint_for_damage: the batches from the damage on can be planned anew."""
        way_back = rollback_hint(self._storage, batch_id)
        return usual if way_back is None else f"{usual}; {way_back}"

    def encode(self, entry: OffsetSeq) -> Sequence[str]:
        """See MetadataLog.encode."""
        values = (entry.watermark_ms, entry.batch_timestamp_ms, dict(entry.conf))
        metadata = dump_json(dict(zip(_FIELDS, values, strict=True)))
        return [metadata, *(_NO_OFFSET if line is None else line for line in entry.sources)]

    def decode(self, data: bytes) -> OffsetSeq:
        """See MetadataLog.decode."""
        found = parse_offset_file(data)
        check_version(found.version, self.version)
        if found.metadata is None or not found.sources:
            raise MalformedLogError("Incomplete log file: metadata or offsets are missing")
        check_fields(found.metadata, _FIELDS)
        watermark_ms, time_ms, conf = found.metadata.values()
        try:
            return OffsetSeq(time_ms, watermark_ms, conf, tuple(s.offset for s in found.sources))
        except ConfigError as error:
            raise MalformedLogError(f"Log file was malformed: {error.message}") from error


def _find_problem(entry: OffsetSeq) -> str | None:
    for name in ("batch_timestamp_ms", "watermark_ms"):
        if not is_time_ms(getattr(entry, name)):
            return f"{name} is {getattr(entry, name)!r}, not a time"
    if not isinstance(entry.conf, Mapping) or not all(map(_is_text, _flatten(entry.conf))):
        return f"conf is {entry.conf!r}, not text to text"
    if not entry.sources:
        return "there is no source"
    for index, line in enumerate(entry.sources):
        if line is not None and not _is_json_line(line):
            return f"the offset of source {index} is {line!r}, not a line of JSON"
    return None


def _flatten(conf: Mapping[Any, Any]) -> list[Any]:
    return [*conf.keys(), *conf.values()]


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_json_line(line: object) -> bool:
    if not isinstance(line, str) or not _is_text(line) or line != line.strip():
        return False
    if "\n" in line or "\r" in line:
        return False
    try:
        parse_json(line)
    except ValueError:
        return False
    return True
