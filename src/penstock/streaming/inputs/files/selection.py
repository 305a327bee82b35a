"""Which files of a listing a batch takes: pure decisions over plain values.

Invariants:

1. A batch takes files with ``after_ms < modified_ms <= until_ms`` that no batch took before. The
   windows of successive batches leave no gap, also across a restart, so a file is passed over only
   if it shows up later than the remember duration after it was modified.
2. A file that a batch took is known by name for longer than a window can reach its modification
   time, so it is never taken twice. A name may come again after that, as a new file.
3. An offset holds its own batch's files only: the log's size grows with the files, not with the
   directory and not with the number of batches. What was taken before is found in the entries of
   the batches within the remember duration.

Source: ``org.apache.spark.streaming.dstream.FileInputDStream``. It has a batch for each tick of a
downtime, and so its windows go back from each; the window of a batch for several ticks goes back
from the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class ListedFile:
    """A file as a listing shows it. ``path`` is a full URL; the length is in bytes."""

    path: str
    modified_ms: int
    length: int


@dataclass(frozen=True, slots=True)
class FileOffset:
    """How far an input has come: the window of modification times, and what the batch took of it.

    Times are milliseconds since the epoch; ``after_ms`` is excluded, ``until_ms`` included.
    """

    after_ms: int
    until_ms: int
    files: tuple[ListedFile, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; names stand under their folders, which many files share."""
        folders = {
            folder: [[f.path[len(folder) + 1 :], f.modified_ms, f.length] for f in files]
            for folder, files in by_folder(self.files).items()
        }
        return {"after": self.after_ms, "until": self.until_ms, "files": folders}

    @staticmethod
    def from_json(value: dict[str, Any]) -> FileOffset:
        """Return what ``to_json`` was made of; raises KeyError, TypeError or ValueError."""
        files = (
            ListedFile(f"{folder}/{name}", int(modified_ms), int(length))
            for folder, listed in value["files"].items()
            for name, modified_ms, length in listed
        )
        return FileOffset(int(value["after"]), int(value["until"]), tuple(sorted(files)))


def next_offset(
    previous: FileOffset,
    time_ms: int,
    *,
    interval_ms: int,
    remember_ms: int,
) -> FileOffset:
    """Return the window of the batch of that time, without files yet.

    Args:
        previous: that of the batch before it, or the input's first offset.
        time_ms: the batch's time, or the clock's where that is behind: files have its times.
        interval_ms: the batch interval.
        remember_ms: how late a file may show up.
    """
    if time_ms < previous.until_ms:  # the clock was set back
        return FileOffset(time_ms - remember_ms, time_ms)
    first_tick_ms = min(previous.until_ms + interval_ms, time_ms)
    after_ms = max(previous.after_ms, first_tick_ms - remember_ms)
    return FileOffset(after_ms, time_ms)


class TakenFiles:
    """The files that earlier batches took and that a window may still reach."""

    def __init__(self) -> None:
        self._by_path: dict[str, tuple[ListedFile, int]] = {}

    def add(self, offset: FileOffset) -> None:
        """Know a batch's files as taken."""
        self._know(offset.files, offset.until_ms)

    def forget(self, before_ms: int) -> None:
        """Forget what was taken, and last seen to change, before that time."""
        old = [path for path, (_, since_ms) in self._by_path.items() if since_ms < before_ms]
        for path in old:
            del self._by_path[path]

    def changed(self, listing: Iterable[ListedFile]) -> list[ListedFile]:
        """Return files that were taken and changed since, each change once."""
        found = [
            file
            for file in listing
            if (known := self._by_path.get(file.path)) is not None and known[0] != file
        ]
        self._know(found, 0)  # so that a new modification time does not make it a new file
        return found

    def _know(self, files: Iterable[ListedFile], taken_ms: int) -> None:
        for file in files:
            self._by_path[file.path] = file, max(taken_ms, file.modified_ms)

    def select(
        self, listing: Iterable[ListedFile], window: FileOffset, wanted: Callable[[str], bool]
    ) -> FileOffset:
        """Return the window with the files that its batch takes.

        ``wanted`` is the program's filter, asked of each file that would be taken otherwise.
        """
        new = [
            file
            for file in listing
            if window.after_ms < file.modified_ms <= window.until_ms
            if file.path not in self._by_path
            if wanted(file.path)
        ]
        return replace(window, files=tuple(sorted(new)))


def by_folder(files: Sequence[ListedFile]) -> dict[str, list[ListedFile]]:
    """Return the files by the URL of their folder."""
    ordered = sorted(files)
    return {
        folder: list(group)
        for folder, group in groupby(ordered, key=lambda file: file.path.rpartition("/")[0])
    }
