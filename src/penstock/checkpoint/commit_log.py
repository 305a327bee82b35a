"""The commit log: the batches that are done, written after their results are durable.

    v1
    {"nextBatchWatermarkMs":0}

Source: Spark's CommitLog, CommitMetadata. Spark 4 has versions 2 and 3 for queries whose state
store keeps checkpoint ids or whose sinks have metadata; they are refused as newer. Any additional
field in a v1 entry is refused as well: Spark does not write one, and dropping it could lose state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.log_files import parse_commit_file
from penstock.checkpoint.log_format import (
    MalformedLogError,
    check_fields,
    check_version,
    dump_json,
    is_time_ms,
)
from penstock.checkpoint.metadata_log import MetadataLog
from penstock.errors import ConfigError
from penstock.storage import Storage

_FIELDS = ("nextBatchWatermarkMs",)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """``next_batch_watermark_ms``: the event-time watermark from the next batch on, since epoch."""

    next_batch_watermark_ms: int = 0

    def __post_init__(self) -> None:
        value = self.next_batch_watermark_ms
        if not is_time_ms(value):
            raise ConfigError(
                f"next_batch_watermark_ms is {value!r}, not a time",
                operation="build commit of a batch",
                hint="give milliseconds since the epoch, 0 without event time",
            )


class CommitLog(MetadataLog[CommitMetadata]):
    """The commit log in ``folder`` of a storage, in Spark's format v1."""

    def __init__(self, storage: Storage, folder: str = "commits") -> None:
        super().__init__(storage, folder)

    def hint_for_damage(self, batch_id: int, usual: str) -> str:
        """See MetadataLog.hint_for_damage: without its commit a batch runs again."""
        path = self._path(batch_id)
        if not self._storage.exists(path):
            return usual
        return (
            f"{usual}; without a backup, delete {self._storage.uri(path)}: batch {batch_id} then "
            "runs again, with the same records"
        )

    def encode(self, entry: CommitMetadata) -> Sequence[str]:
        """See MetadataLog.encode."""
        return [dump_json({_FIELDS[0]: entry.next_batch_watermark_ms})]

    def decode(self, data: bytes) -> CommitMetadata:
        """See MetadataLog.decode."""
        found = parse_commit_file(data)
        check_version(found.version, self.version)
        if not found.metadata:
            raise MalformedLogError("Incomplete log file: metadata is missing")
        check_fields(found.metadata, _FIELDS)
        try:
            return CommitMetadata(*found.metadata.values())
        except ConfigError as error:
            raise MalformedLogError(f"Log file was malformed: {error.message}") from error
