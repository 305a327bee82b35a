"""A checkpoint location of any Structured Streaming query or penstock program, for reading.

    Checkpoint.open("s3://bucket/query").batches([41, 42])

The files are listed once, and read when they are asked for. Requests to an object store: one for
the root and one for each of Spark's four folders (more where a folder has thousands of files), then
one for each file that is read, many at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.location_id import METADATA
from penstock.checkpoint.log_format import MalformedLogError, parse_fields
from penstock.checkpoint.tools.barrier import BARRIER, INTERRUPTED
from penstock.checkpoint.tools.batches import (
    Batch,
    batch_ids_in,
    batch_paths,
    newer_problems,
    parse_batch,
)
from penstock.checkpoint.tools.checks.checksums import check_sidecar, sidecar_of
from penstock.checkpoint.tools.findings import worst
from penstock.checkpoint.tools.next_batch import NextBatch, next_of_penstock, next_of_spark
from penstock.checkpoint.tools.operators import OperatorInfo, newest_infos, parse_operator_info
from penstock.checkpoint.tools.reading import (
    Content,
    inner_folders,
    list_files,
    read_entries,
)
from penstock.checkpoint.tools.state_files import OperatorState, group_state
from penstock.errors import ConfigError
from penstock.storage import FileInfo, Storage, open_existing

_LOGS = ("offsets", "commits")
_RUN = "spark.penstock.run"
_KEPT_FROM = "spark.penstock.keptFrom"
_OPERATION = "open checkpoint location"
PIECE_BYTES = 2**24
"""The bytes of a large file that are held at a time."""
_HINT = "give the directory that the query has as checkpointLocation, or the program's checkpoint()"


class Checkpoint:
    """What a location held when it was listed; nothing is judged, and nothing written."""

    def __init__(self, storage: Storage, files: Mapping[str, FileInfo]) -> None:
        self.storage = storage
        self.url = storage.url
        self.files = files
        """The files at the root and in Spark's folders, by path."""

    @classmethod
    def open(cls, place: str | os.PathLike[str]) -> Checkpoint:
        """Return the location at a path or URL.

        Raises:
            ConfigError: the URL is not understood, or there is nothing that a query has left.
            StorageError: it cannot be listed.
        """
        storage = open_location(place)
        files = list_files(storage)
        if not {METADATA, *_LOGS}.intersection(each.partition("/")[0] for each in files):
            raise nothing_there(place)
        return cls(storage, files)

    def read(self, paths: Iterable[str]) -> dict[str, Content]:
        """Return what files hold, without those that were retired since; one request for each.

        What is too large is an error; see penstock.checkpoint.tools.reading.
        """
        return read_entries(self.storage, self.files, paths)

    def read_pieces(self, path: str) -> Iterator[bytes]:
        """Yield what a file of state holds, however large it is.

        Raises:
            StorageError: it cannot be read, or is gone.
        """
        size = self.files[path].size
        for start in range(0, size, PIECE_BYTES):
            yield self.storage.read(path, start, min(size, start + PIECE_BYTES))

    @cached_property
    def planned(self) -> tuple[int, ...]:
        """The batch ids in the offset log, ascending; the barrier is none."""
        return batch_ids_in((path for path in self.files if path != BARRIER), "offsets")

    @property
    def is_barred(self) -> bool:
        """Whether a change of the location is not finished; then no query starts."""
        return BARRIER in self.files

    def read_barrier(self) -> bytes:
        """Return the entry that bars the location; empty without one, or if it cannot be read."""
        entry = self.read([BARRIER]).get(BARRIER) if self.is_barred else None
        return entry if isinstance(entry, bytes) else b""

    @cached_property
    def committed(self) -> tuple[int, ...]:
        """The batch ids in the commit log, ascending."""
        return batch_ids_in(self.files, "commits")

    @cached_property
    def done(self) -> tuple[int, ...]:
        """The batch ids in both logs, ascending."""
        return tuple(sorted({*self.planned} & {*self.committed}))

    @property
    def has_state(self) -> bool:
        """Whether there is any file of a stateful operator."""
        return any(path.startswith("state/") for path in self.files)

    def folders_in(self, *logs: str) -> list[str]:
        """Return what is not a file in logs, in which only files belong (folders, FIFOs)."""
        return [
            path
            for log in logs
            for path in inner_folders(
                self.storage, log, [each for each in self.files if each.startswith(f"{log}/")]
            )
        ]

    def batches(self, batch_ids: Iterable[int] | None = None) -> tuple[Batch, ...]:
        """Return batches that have an entry, ascending; all of them when none are named."""
        known = {*self.planned, *self.committed}
        wanted = sorted(known if batch_ids is None else known.intersection(batch_ids))
        paths = [path for each in wanted for path in batch_paths(each) if path in self.files]
        contents = self.read(paths)
        batches = (parse_batch(each, contents, self.files) for each in wanted)
        return tuple(batch for batch in batches if batch.planned or batch.committed)

    def read_id(self) -> str | None:
        """Return the id in the metadata file; None when there is none, or it cannot be read."""
        return parse_id(self.read([METADATA]).get(METADATA))

    def operators(
        self, contents: Mapping[str, Content] | None = None
    ) -> tuple[tuple[OperatorState, OperatorInfo | None], ...]:
        """Return the stateful operators, each with what it says of itself, as far as it does.

        ``contents`` are files that were read before.
        """
        paths = newest_infos(self.files)
        known = self.read(paths.values()) if contents is None else contents
        states = group_state(self.files)
        return tuple((each, _info(known.get(paths.get(each.operator, "")))) for each in states)

    def next_batch(self, newest: Batch | None, before: Batch | None = None) -> NextBatch:
        """Return what a start does first; ``newest`` is the newest planned batch.

        Every start reads its entries, so it fails if one of them cannot be read; so does one of
        Spark for the offsets of the batch ``before`` it, as far as they are known, and one of
        penstock for those of the batches that run again.
        """
        following = self.next_by_ids(newest)
        if self.is_barred:
            return replace(following, problem=f"{INTERRUPTED} (docs/checkpoints.md)")
        for path in self.folders_in(*_LOGS):
            if path in (f"offsets/{following.batch_id}", f"commits/{following.first}"):
                return replace(following, problem=f"{path} is not a file, in the place of an entry")
        if newest is None or following.problem is not None:
            return following
        is_own = is_of_penstock(newest)
        needed = self._read_by_start(newest, before, following)
        batches = [newest, *([before] if before is not None else [])]
        known = {each.batch_id for each in batches}
        more = {parse_batch_id(path.rpartition("/")[2]) for path in needed} - known - {None}
        batches += self.batches(each for each in more if each is not None)
        found = (p for each in batches for p in (*each.problems, *newer_problems(each)))
        for damage in found:
            if damage.path in needed:
                return replace(following, problem=f"{damage.path} cannot be read: {damage.message}")
        for path in self.altered(needed, is_strict=is_own):
            what = f"{path} does not fit its checksum"
            says = "" if is_own else " (Spark does, with what was altered: see `validate`)"
            return replace(following, problem=f"{what}{says}")
        return following

    def _read_by_start(
        self, newest: Batch, before: Batch | None, following: NextBatch
    ) -> list[str]:
        """Return the entries that a start reads, as far as they are known."""
        if not is_of_penstock(newest):
            starts = [batch_paths(before.batch_id)[0]] if before is not None else []
            return [*batch_paths(newest.batch_id), *starts]
        again = {each for n in following.rerun for each in (n - 1, n)} & {*self.planned}
        offsets = [batch_paths(each)[0] for each in sorted({*again, newest.batch_id}, reverse=True)]
        return [*offsets, *(batch_paths(each)[1] for each in self.done[-1:])]

    def altered(self, paths: Iterable[str], *, is_strict: bool) -> list[str]:
        """Return the entries among these that do not fit the checksums beside them."""
        guarded = [path for path in paths if path in self.files and sidecar_of(path) in self.files]
        found = self.read([*guarded, *map(sidecar_of, guarded)])
        return [
            path
            for path in guarded
            if isinstance(data := found.get(path), bytes)
            and isinstance(sidecar := found.get(sidecar_of(path)), bytes)
            and worst(check_sidecar(path, [data], sidecar, strict=is_strict)) == "error"
        ]

    def next_by_ids(self, newest: Batch | None) -> NextBatch:
        """Return what a start does first if it can read its entries."""
        planned, committed = self.kept_ids(newest)
        if is_of_penstock(newest):
            return next_of_penstock(planned, committed)
        return next_of_spark(planned, committed, has_state=self.has_state)

    def kept_ids(self, newest: Batch | None) -> tuple[list[int], list[int]]:
        """Return the planned and the committed batch ids that mean something to a start.

        penstock's newest entry names the oldest batch that counts (penstock.checkpoint.batch_life,
        invariant 5); Spark's all count.
        """
        text = newest.conf.get(_KEPT_FROM) if newest is not None else None
        first = (parse_batch_id(text) if isinstance(text, str) else None) or 0
        planned, committed = (
            [each for each in ids if each >= first] for ids in (self.planned, self.committed)
        )
        return planned, committed


def open_location(place: str | os.PathLike[str]) -> Storage:
    """Open a location for reading; raises ConfigError when there is no such folder."""
    storage = open_existing(os.fspath(place), operation=_OPERATION, hint=_HINT)
    return storage.without_sync()  # a listing is durable for drivers, who build on it


def nothing_there(place: str | os.PathLike[str]) -> ConfigError:
    """Return the error of a folder in which no query has left anything."""
    return ConfigError(
        "this is not a checkpoint location, or no query has used it yet",
        operation=_OPERATION,
        path=os.fspath(place),
        hint=_HINT,
    )


def describe_kept(batch_ids: Sequence[int]) -> str:
    """Return in words which batches a location keeps; ``batch_ids`` ascend."""
    if not batch_ids:
        return "it keeps none"
    retired = "; older ones are retired (spark.sql.streaming.minBatchesToRetain)"
    return f"it keeps batches {batch_ids[0]} to {batch_ids[-1]}{retired}"


def parse_id(content: Content | None) -> str | None:
    """Return the id in the metadata file's content; None when there is none."""
    try:
        found = parse_fields(content.decode()).get("id") if isinstance(content, bytes) else None
    except (MalformedLogError, UnicodeDecodeError):
        return None
    return found if isinstance(found, str) else None


def is_of_penstock(batch: Batch | None) -> bool:
    """Whether a driver of penstock planned a batch; else one of Spark did."""
    return batch is not None and _RUN in batch.conf


def _info(content: Content | None) -> OperatorInfo | None:
    try:
        return parse_operator_info(content) if isinstance(content, bytes) else None
    except MalformedLogError:
        return None
