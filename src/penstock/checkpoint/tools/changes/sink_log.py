r"""Takes the log of Spark's own file sink back with its query. Pure but for its reads.

    <output>/_spark_metadata/12             the files that batch 12 wrote, a line of JSON each
    <output>/_spark_metadata/9.compact      those of all batches up to 9

The sink skips a batch whose id is not above the newest in this log. It compacts at every i-th
entry, and it and every reader read from the newest compacted entry on, of which none may be
missing. So the ids that a change of the checkpoint location leaves out get entries here, and one of
them is compacted: it names the files of the batches up to the point that the query goes back to.
From then on those of later batches are not in the output, for whoever reads it by its log.

The interval i is not in the log. Spark takes it from the last two compacted entries, and makes it
fit where there is one; without any it is a setting, and fits the entry that is written here.

Source: FileStreamSink.addBatch, ManifestFileCommitProtocol, CompactibleFileStreamLog.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

from penstock.checkpoint.batch_ids import describe_files, find_gaps, parse_batch_id
from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.log_format import MalformedLogError, decode_log, encode_log, parse_fields
from penstock.checkpoint.tools.changes.files import CHECKSUM
from penstock.checkpoint.tools.changes.plan import SINK_LOG, FileChange
from penstock.checkpoint.tools.changes.position import misfit
from penstock.checkpoint.tools.checks.checksums import check_sidecar, sidecar_of
from penstock.checkpoint.tools.findings import Finding
from penstock.checkpoint.tools.named_files import files_outside
from penstock.checkpoint.tools.reading import read_entries, read_if_there
from penstock.errors import CheckpointError, StorageError
from penstock.storage import FileInfo, Storage, attach_storage, local_root, open_existing

__all__ = ["FIRST_COMPACTED", "Missing", "SinkLog", "begin_sink_log"]

_COMPACT = ".compact"
_NAME = len(f"{SINK_LOG}/")
_VERSION = 1
_EMPTY = encode_log(_VERSION, [])
_FEWEST = 10
"""Spark's own interval; a shorter one would compact more often than it has to."""
FIRST_COMPACTED = _FEWEST - 1
"""The first batch after which Spark compacts, by its own interval."""
_MAX_ID = 2**31 - 2
"""The newest batch from which Spark can take an interval, a number of 32 bits."""
_FIELDS = {
    "path": str,
    "size": int,
    "isDir": bool,
    "modificationTime": int,
    "blockReplication": int,
    "blockSize": int,
    "action": str,
}
"""What a line holds, none of which may be missing (SinkFileStatus)."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The files of an output that are not in its folder, among so many that its log names."""

    files: Sequence[str]
    count: int

    @property
    def is_all(self) -> bool:
        """Whether none is there: the output was moved, or is a copy."""
        return len(self.files) == self.count

    def __bool__(self) -> bool:
        return bool(self.files)

    def __str__(self) -> str:
        return (
            f"{len(self.files)} of {self.count} files that its log names are not in this folder:"
            f" {', '.join(self.files[:3])}"
        )


@dataclass(frozen=True, slots=True)
class SinkLog:
    """The log of a sink: the paths of its entries, by batch id."""

    storage: Storage
    entries: Mapping[int, str]
    files: Mapping[str, FileInfo]
    """All that is in its folder, by path."""

    @classmethod
    def open(cls, output: str | os.PathLike[str]) -> SinkLog:
        """Return the log of the sink that writes to that folder.

        Raises:
            ConfigError: there is no such folder, or no sink has written to it.
            StorageError: it cannot be listed.
        """
        hint = "give the folder that the query's writeStream has as its path"
        storage = open_existing(os.fspath(output), operation="open file sink", hint=hint)
        storage = storage.without_sync()
        paths = {f"{SINK_LOG}/{each.name}": each.size for each in storage.list(SINK_LOG)}
        files = {path: FileInfo(path, size) for path, size in paths.items()}
        entries = {
            batch_id: path
            for path in files
            if (batch_id := parse_batch_id(path[_NAME:].removesuffix(_COMPACT))) is not None
        }
        if not entries:
            raise misfit(storage.url, f"it has no log of Spark's file sink in {SINK_LOG}", hint)
        return cls(storage, entries, files)

    @property
    def newest(self) -> int:
        """The newest batch that the sink has taken."""
        return max(self.entries)

    def first_compacted(self, above: int) -> int | None:
        """Return the first id after another one at which Spark expects a compacted entry.

        None stands for any id, as there is no compacted entry yet.
        """
        interval = self._interval()
        return None if interval is None else (above + 1) // interval * interval + interval - 1

    def file_times(self, batch_id: int) -> list[int]:
        """Return when the files of a batch were written, in ms; none if no entry is its own alone.

        Raises:
            CheckpointError: its entry is damaged.
        """
        path = self.entries.get(batch_id, _COMPACT)
        lines = [] if path.endswith(_COMPACT) else self._read(path)
        return [parse_fields(line)["modificationTime"] for line in lines]

    def missing(self, batch_id: int | None = None) -> Missing:
        """Return which files of the output are not there.

        Args:
            batch_id: the output is that of the batches up to this one; None for all of them.

        Raises:
            CheckpointError: an entry that is needed for that is missing, or damaged.
            StorageError: the folder cannot be listed.
        """
        lines = map(parse_fields, self._files(self.newest if batch_id is None else batch_id))
        uris = [each["path"] for each in lines if each["action"] == "add" and not each["isDir"]]
        return Missing(files_outside(self.storage, uris), len(uris))

    def changes(self, batch_id: int | None, next_id: int) -> Iterator[FileChange]:
        """Yield the entries from the newest up to, but not of, ``next_id``.

        Args:
            batch_id: the output is that of the batches up to this one; None for all of them.
            next_id: the batch that the sink is to take next.

        Raises:
            CheckpointError: an entry that is needed for that is missing, or damaged.
        """
        newest = self.newest
        files = encode_log(_VERSION, self._files(newest if batch_id is None else batch_id))
        interval = self._interval() or next_id
        for each in range(newest + 1, next_id):
            if (each + 1) % interval == 0:
                yield from _new_entry(self.storage, f"{each}{_COMPACT}", files)
            else:
                yield from _new_entry(self.storage, str(each), _EMPTY)

    def check(self, planned: int, committed: int) -> Iterator[Finding]:
        """Yield where the log does not fit a query's newest planned and committed batches."""
        newest, place = self.newest, f"{self.storage.url}/{SINK_LOG}"
        if newest > planned:
            yield Finding(
                "error",
                place,
                f"the sink has taken batch {newest}, and the query has planned up to {planned}",
                "the sink skips the batches up to there, without a word: their records are lost",
                f"penstock checkpoint rewind DIR --to-batch {committed} --sink"
                f" {shlex.quote(self.storage.url)}:"
                " the next batches get ids above the sink's",
            )
        elif newest < committed:
            yield Finding(
                "error",
                place,
                f"the log ends with batch {newest}, and the query has committed {committed}",
                "the sink, and who reads the output, fail when they miss an entry"
                " (BATCH_METADATA_NOT_FOUND)",
                "undo the change that left them out, and give it --sink; or restore the log; or it"
                " is another query's",
            )
        try:
            self._interval()
            if missing := self.missing():
                yield Finding(
                    "error" if missing.is_all else "warning",
                    place,
                    str(missing),
                    "who reads the output with Spark fails, or gets fewer records",
                    "move the output back to where its log says; or, if the files were deleted on"
                    " purpose, read it with spark.sql.files.ignoreMissingFiles",
                )
        except CheckpointError as error:
            what = error.message
            yield Finding("error", place, what, "the output cannot be read", "restore the file")

    def _interval(self) -> int | None:
        """Return after how many entries Spark compacts; None before it has compacted any."""
        compacted = sorted(n for n, path in self.entries.items() if path.endswith(_COMPACT))
        if not compacted:
            return None
        last = compacted[-1]
        if last > _MAX_ID:
            raise self._refusal(f"{last}{_COMPACT} is above all ids of batches")
        if len(compacted) > 1:
            interval = last - compacted[-2]
            fits = (last + 1) % interval == 0 and self.newest < last + interval
        else:
            least = max(_FEWEST, self.newest - last + 1)
            interval = min((n for n in _divisors(last + 1) if n >= least), default=last + 1)
            fits = self.newest < last + interval
        if not fits:
            raise self._refusal(f"{last}{_COMPACT} is not where Spark compacts")
        return interval

    def _files(self, batch_id: int) -> list[str]:
        """Return the lines of the files that the batches up to one have written."""
        until = [each for each in self.entries if each <= batch_id]
        first = max((n for n in until if self.entries[n].endswith(_COMPACT)), default=0)
        needed = [each for each in sorted(until) if each >= first]
        if gaps := find_gaps({first - 1, *needed, batch_id + 1}):
            raise self._refusal(f"it lacks {describe_files(SINK_LOG, gaps)}")
        return [line for each in needed for line in self._read(self.entries[each])]

    def _read(self, path: str) -> list[str]:
        sidecar = sidecar_of(path)
        found = read_entries(self.storage, self.files, [path, sidecar])
        data, checksum = found.get(path), found.get(sidecar, b"")
        if not isinstance(data, bytes) or not isinstance(checksum, bytes):
            why = next(
                (f": {e.message}" for e in found.values() if isinstance(e, StorageError)), ""
            )
            raise self._refusal(f"{path} cannot be read{why}")
        for finding in check_sidecar(path, [data], checksum, strict=False):
            raise self._refusal(f"{finding.path}: {finding.what}")
        try:
            lines = decode_log(data, _VERSION)
            for line in lines:
                _check_line(line)
            return lines
        except MalformedLogError as error:
            raise self._refusal(f"{path}: {error}") from error

    def _refusal(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"the log of the file sink does not say which files were in the output: {what}",
            operation="plan change of file sink",
            path=self.storage.url,
            hint="restore the file from a backup; or choose a later point",
        )


def _check_line(line: str) -> None:
    """Raise MalformedLogError unless a line is one that Spark can read."""
    fields: dict[str, Any] = parse_fields(line)
    for name, kind in _FIELDS.items():
        if type(fields.get(name)) is not kind:
            raise MalformedLogError(f"Log file was malformed: {line} has no {name}")


def _divisors(number: int) -> set[int]:
    low = {n for n in range(1, isqrt(number) + 1) if number % n == 0}
    return low | {number // n for n in low}


def begin_sink_log(
    output: str | os.PathLike[str], batch_id: int, *, is_begun: bool = False
) -> tuple[FileChange, ...]:
    """Return what lets a sink begin in a new folder after a batch, as if that had left no files.

    Spark compacts after as many entries as lie between the last two compacted ones. Where there is
    one only, that is its setting as far as that divides id + 1, and id + 1 otherwise: for the ids 9
    to 18 that is 10 to 19 entries.

    Args:
        output: the folder.
        batch_id: the batch; with one below ``FIRST_COMPACTED`` Spark compacts more often.
        is_begun: the same entries may be there already.

    Raises:
        ConfigError: a sink has written to that folder.
    """
    storage = attach_storage(output)
    last = (batch_id + 1) // _FEWEST * _FEWEST - 1
    if last > FIRST_COMPACTED:
        names = [f"{last - _FEWEST}{_COMPACT}", f"{last}{_COMPACT}"]
        names += map(str, range(last + 1, batch_id + 1))
    else:
        names = [f"{batch_id}{_COMPACT}"]
    changes = tuple(each for name in names for each in _new_entry(storage, name, _EMPTY))
    known = {each.path for each in changes} if is_begun else set()
    if {f"{SINK_LOG}/{entry.name}" for entry in storage.list(SINK_LOG)} - known:
        raise misfit(
            storage.url,
            f"it has a log of Spark's file sink in {SINK_LOG}: another query writes there",
            "give a folder that does not exist yet; or delete it, if all that was there is a fork"
            " that you gave up",
        )
    return changes


def _new_entry(storage: Storage, name: str, data: bytes) -> Iterator[FileChange]:
    """Yield what writes an entry; on a local file system also its checksum."""
    why = "an entry of the sink's log" if data == _EMPTY else "the files that are in the output"
    path = f"{SINK_LOG}/{name}"
    sides = [(path, data, why)]
    if local_root(storage.url) is not None:
        sides.append((sidecar_of(path), checksum_of(data), CHECKSUM))
    for each, content, reason in sides:
        yield FileChange(each, read_if_there(storage, each), content, reason, storage.url)
