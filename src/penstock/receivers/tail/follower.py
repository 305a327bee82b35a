"""Follows the files that patterns name: scans the disk from time to time, and reads in turn."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import ReceiverError
from penstock.receivers.descriptors import spare_descriptors
from penstock.receivers.tail.follow import (
    FileId,
    FollowOptions,
    Mark,
    Place,
    decide_new,
    superseded,
)
from penstock.receivers.tail.followed_file import FollowedFile
from penstock.receivers.tail.listing import Found, expand, is_named
from penstock.receivers.tail.positions import MarksByPath, by_path, position_from_marks
from penstock.receivers.tail.scan import Problems, Report, Scan

_log = logging.getLogger(__name__)

_SETTLE_TRIES = 50


class Follower:
    """The followed files, in the order of age within each path.

    ``scan`` and ``read_round`` are called in turn, by one thread.

    Args:
        options: what to follow.
        marks: how far files are stored; None when nothing was ever stored.
        report: told of each problem once, until it is over.
    """

    def __init__(self, options: FollowOptions, marks: list[Mark] | None, report: Report) -> None:
        self._options = options
        self._resumed = marks is not None
        self._first_scan = True
        self._most_open = spare_descriptors()
        self._files = [FollowedFile(mark, options) for mark in marks or []]
        self._of_path: dict[str, list[FollowedFile]] = {}
        """The files of ``_files``, as of the last scan."""
        self._told: dict[str, list[Mark]] = by_path(marks or [])
        """What ``changes`` has told, with what was known at first."""
        self._changed: set[str] = set()
        """The paths whose marks may differ from those that were told."""
        self._problems = Problems(report)
        self._real_paths: dict[tuple[str, FileId], str] = {}

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()

    def changes(self) -> MarksByPath:
        """Return what changed since the last call: all marks of each path, after all that was read.

        Takes the time of what changed, not of all files.
        """
        changes = {path: self._marks_of(path) for path in sorted(self._changed)}
        self._told.update(changes)
        self._changed.clear()
        return changes

    def _marks_of(self, path: str) -> list[Mark]:
        return [file.mark for file in self._of_path.get(path, ()) if file.has_begun]

    def scan(self) -> None:
        """Process what was rotated, replaced, added or removed since the last scan."""
        start = decide_new(
            resumed=self._resumed,
            first_scan=self._first_scan,
            from_beginning=self._options.from_beginning,
        )
        try:
            found = self._expand()
            if self._first_scan:
                found = self._settle(found)
                self._leave_out_abandoned(found)
            options, most = self._options, self._most_open
            self._files = Scan(self._files, found, start, options, most, self._problems).take()
        except OSError as error:
            self._problems.tell("look", f"cannot look for files: {error}", error)
            return
        self._problems.settle("look")
        self._first_scan = False
        self._note_changes()

    def _note_changes(self) -> None:
        """Find the changes of a scan, which takes the time of all files anyway."""
        self._of_path = {}
        for file in self._files:
            self._of_path.setdefault(file.mark.path, []).append(file)
        self._told = {path: marks for path, marks in self._told.items() if marks}
        self._changed.clear()
        for path in self._told.keys() | self._of_path.keys():
            now, told = self._marks_of(path), self._told.get(path, [])
            if now == told:
                continue
            if position_from_marks(now) == position_from_marks(told):
                self._told[path] = now  # the device became known
            else:
                self._changed.add(path)

    def read_round(self) -> Iterator[pa.RecordBatch]:
        """Read a bounded amount from each file in turn; at a yield, the marks are just behind it.

        A file waits while an older one of its path has lines, so lines keep their order through a
        rotation.
        """
        busy: set[str] = set()
        for file in list(self._files):
            if file.mark.path in busy:
                continue
            try:
                batch = self._next_batch(file)
            except (OSError, ReceiverError) as error:
                self._problems.tell(("read", file.mark.file_id), str(error), error)
                continue
            self._problems.settle(("read", file.mark.file_id))
            if batch is not None:
                busy.add(file.mark.path)
                yield batch

    def _next_batch(self, file: FollowedFile) -> pa.RecordBatch | None:
        before = file.mark
        batch = file.read()
        if file.mark is not before:
            self._changed.add(file.mark.path)
        if batch is not None or file.place is Place.FOLLOWED:
            return batch
        ends = self._ends(file)
        if file.at_end and (ends or self._is_left_alone(file)):
            batch = file.read_rest()
            # Where a link was switched, the file has its path still, and may have a writer.
            if batch is None and not file.mark.is_whole and _bytes_after(file.mark) is None:
                file.note_whole()
                self._changed.add(file.mark.path)
        if ends and batch is None:
            if file.is_stuck:
                self._tell_left(file)
            self._files.remove(file)
            self._of_path[file.mark.path].remove(file)
            file.close()
        if batch is not None or ends:
            self._changed.add(file.mark.path)
        return batch

    def _tell_left(self, file: FollowedFile) -> None:
        self._problems.report(
            f"{file.mark.path} was deleted: what it held after byte {file.mark.offset} could not "
            "be read",
            None,
        )

    def _ends(self, file: FollowedFile) -> bool:
        """Whether the file is read to the end and need not be remembered."""
        if file.place is Place.UNLINKED:
            return file.at_end or file.is_stuck
        of_path = self._of_path[file.mark.path]
        newer = [other.mark for other in of_path[of_path.index(file) + 1 :]]
        return file.at_end and superseded(file.mark, newer)

    def _is_left_alone(self, file: FollowedFile) -> bool:
        idle_ms = (time.monotonic() - file.idle_since_s) * 1000
        return idle_ms >= self._options.rotate_wait_ms

    def _expand(self) -> list[Found]:
        """Return what the patterns name, by real paths: rotated files are beside those."""
        real_paths = {}
        found = []
        for pattern in self._options.patterns:
            matches = expand(pattern, self._tell_unusable)
            if self._first_scan and not matches and not os.path.lexists(pattern):
                self._problems.tell(
                    ("match", pattern), f"no file matches {pattern} yet; waiting for one"
                )
            for match in matches:
                self._problems.settle(("stat", match.path))
                key = (match.path, match.file_id)
                real_paths[key] = self._real_paths.get(key) or os.path.realpath(match.path)
                name = match.path if match.path != real_paths[key] else ""
                found.append(match._replace(path=real_paths[key], name=name))
        self._real_paths = real_paths
        return found

    def _settle(self, found: list[Found]) -> list[Found]:
        """Expand until two results agree: a glob may miss a file while others are renamed."""
        for _ in range(_SETTLE_TRIES):
            again = self._expand()
            if _names(again) == _names(found):
                return again
            found = again
        raise OSError(errno.EAGAIN, "the files that match keep changing")

    def _leave_out_abandoned(self, found: list[Found]) -> None:
        """Forget files that have their name still, but match no pattern: paths were taken out.

        A file to which a link led that a pattern names was not taken out: the link was switched.
        """
        followed = {file.file_id.inode for file in found}
        kept = []
        for file in self._files:
            mark = file.mark
            is_asked_for = mark.file_id.inode in followed or self._is_asked_for(mark)
            unread = None if is_asked_for else _bytes_after(mark)
            if unread is None:
                kept.append(file)
            elif unread:
                _log.warning(
                    "%s is not followed any more, as no pattern names it: %d bytes after byte %d "
                    "were not read, and are not",
                    mark.path,
                    unread,
                    mark.offset,
                )
        self._files = kept

    def _is_asked_for(self, mark: Mark) -> bool:
        return any(is_named(pattern, mark.name or mark.path) for pattern in self._options.patterns)

    def _tell_unusable(self, path: str, error: OSError) -> None:
        self._problems.tell(("stat", path), f"cannot follow {path}: {error}", error)


def _names(found: list[Found]) -> set[tuple[str, FileId]]:
    return {(file.path, file.file_id) for file in found}


def _bytes_after(mark: Mark) -> int | None:
    """Return how much a file holds after its mark; None when it has its name no more."""
    try:
        facts = os.stat(mark.path)
    except OSError:
        return None
    return max(0, facts.st_size - mark.offset) if facts.st_ino == mark.file_id.inode else None
