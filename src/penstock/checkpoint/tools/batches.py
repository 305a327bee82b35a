"""A batch according to the two logs, read without loss and without validation. Pure.

What cannot be parsed is kept as a problem beside what can, so one torn file hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.log_files import (
    NEWEST_COMMIT_VERSION,
    NEWEST_OFFSET_VERSION,
    CommitFile,
    OffsetFile,
    parse_commit_file,
    parse_offset_file,
)
from penstock.checkpoint.log_format import MalformedLogError, check_version, is_time_ms, parse_json
from penstock.checkpoint.tools.reading import Content
from penstock.errors import StorageError
from penstock.storage import FileInfo

T = TypeVar("T")

_CLOCKS_AGREE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that cannot be read or parsed, and why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch id: what was planned, and whether it is done."""

    batch_id: int
    offsets: OffsetFile | None
    """Its entry of the offset log; None when there is none, or it is a problem."""
    commit: CommitFile | None
    """Its entry of the commit log; None when there is none, or it is a problem."""
    planned: bool
    """Whether the offset log has a file for it, in whatever state."""
    committed: bool
    """Whether the commit log has a file for it, in whatever state."""
    planned_ms: int | None = None
    """When the file in the offset log was written, since the epoch, where the store tells."""
    committed_ms: int | None = None
    """When the file in the commit log was written, where the store tells."""
    problems: tuple[Problem, ...] = ()

    @property
    def time_ms(self) -> int | None:
        """The batch's time, since the epoch."""
        return self._time("batchTimestampMs")

    @property
    def watermark_ms(self) -> int | None:
        """The event-time watermark that it runs with; 0 is none."""
        return self._time("batchWatermarkMs")

    @property
    def next_watermark_ms(self) -> int | None:
        """The watermark from the next batch on, as the commit says."""
        value = self.commit.metadata.get("nextBatchWatermarkMs") if self.commit else None
        return value if is_time_ms(value) else None

    @property
    def took_ms(self) -> int | None:
        """From the planning to the commit by the times of the two files; None where not known.

        A copied file bears the time of its copying, so they count only where the first agrees with
        the batch's own time.
        """
        begin, end, time_ms = self.planned_ms, self.committed_ms, self.time_ms
        if begin is None or end is None or time_ms is None or end < begin:
            return None
        return end - begin if abs(begin - time_ms) <= _CLOCKS_AGREE_MS else None

    @property
    def conf(self) -> dict[str, Any]:
        """The settings that it was planned with."""
        conf = (self.offsets.metadata or {}).get("conf") if self.offsets else None
        return dict(conf) if isinstance(conf, Mapping) else {}

    @property
    def end_offsets(self) -> dict[str, Any]:
        """Each source's end offset, by its name or its place among the sources.

        JSON is parsed, other text stands as it is, and None is a source that takes no part.
        """
        lines = self.offsets.sources if self.offsets else ()
        return {
            str(place) if line.name is None else line.name: parse_offset(line.offset)
            for place, line in enumerate(lines)
        }

    def _time(self, field: str) -> int | None:
        value = (self.offsets.metadata or {}).get(field) if self.offsets else None
        return value if is_time_ms(value) else None


def parse_offset(text: str | None) -> Any:
    """Return the JSON of an offset; text that is none stands as it is."""
    if text is None:
        return None
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return text


def batch_ids_in(files: Iterable[str], folder: str) -> tuple[int, ...]:
    """Return the batch ids that have files in a folder, ascending."""
    prefix = f"{folder}/"
    names = (path[len(prefix) :] for path in files if path.startswith(prefix))
    ids = (parse_batch_id(name) for name in names)
    return tuple(sorted(batch_id for batch_id in ids if batch_id is not None))


def batch_paths(batch_id: int) -> tuple[str, str]:
    """Return where the entries of a batch are: offsets, commit."""
    return f"offsets/{batch_id}", f"commits/{batch_id}"


def parse_batch(
    batch_id: int, contents: Mapping[str, Content], files: Mapping[str, FileInfo]
) -> Batch:
    """Return a batch from what its files hold; ``files`` tells when they were written."""
    offsets_path, commit_path = batch_paths(batch_id)
    problems: list[Problem] = []
    return Batch(
        batch_id=batch_id,
        offsets=_parse(parse_offset_file, offsets_path, contents, problems),
        commit=_parse(parse_commit_file, commit_path, contents, problems),
        planned=offsets_path in contents,
        committed=commit_path in contents,
        planned_ms=_written_ms(files.get(offsets_path)),
        committed_ms=_written_ms(files.get(commit_path)),
        problems=tuple(problems),
    )


def newer_problems(batch: Batch) -> Iterator[Problem]:
    """Yield the entries of a batch that only a later release of Spark than the known ones reads."""
    offsets_path, commit_path = batch_paths(batch.batch_id)
    for path, entry, newest in (
        (offsets_path, batch.offsets, NEWEST_OFFSET_VERSION),
        (commit_path, batch.commit, NEWEST_COMMIT_VERSION),
    ):
        try:
            check_version(entry.version if entry is not None else newest, newest)
        except MalformedLogError as error:
            yield Problem(path, str(error))


def _parse(
    parse: Callable[[bytes], T], path: str, contents: Mapping[str, Content], problems: list[Problem]
) -> T | None:
    content = contents.get(path)
    if content is None:
        return None
    if isinstance(content, StorageError):
        problems.append(Problem(path, str(content)))
        return None
    try:
        return parse(content)
    except MalformedLogError as error:
        problems.append(Problem(path, str(error)))
        return None


def _written_ms(info: FileInfo | None) -> int | None:
    return None if info is None else info.modified_ms
