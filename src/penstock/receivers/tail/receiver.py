"""Lines of growing files, as ``tail -F``, each once: through rotation, truncation and kills."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.receivers.lines import DEFAULT_MAX_LINE_BYTES, check_max_line_bytes
from penstock.receivers.tail.follow import FollowOptions
from penstock.receivers.tail.follower import Follower
from penstock.receivers.tail.positions import MarkPositions
from penstock.receivers.threaded import ThreadedReceiver

Paths = str | os.PathLike[str]

_STORE_BYTES = 4 << 20
"""Lines of several files are stored together up to here: else each would be a store, and those of
many files that grow would have as many positions."""
_SCAN_SHARE = 10
"""A scan takes at most one part in so many of the time, however many files there are."""


class TailReceiver(ThreadedReceiver):
    r"""Follows files and stores each line once, also across kills of this process.

    The position (for each file: path, inode, offset, fingerprint) is stored with the lines,
    so the journal never has the one without the other. It tells of the files that match now and the
    last rotated ones, and does not grow with time. Of more than 100 files it holds those that
    changed lately; the others are in copies among the receiver's own files.

    What is followed:

    - Files that exist and files that appear later, also of globs (``*``, ``?``, ``[]``, ``**``).
    - Rotation by rename, also several at once and while the receiver was down: a renamed file is
      read to its end before its successor. It is searched for in the same directory under any name;
      files that came and went unseen are found by the usual names (``app.log.1``,
      ``app.log-20240131``, ``app-2024-01-31.log``, ``app.log.old``). Compressed ones are not read;
      where one may hold lines that were not read, ``reportError`` names it.
      Numbers at the end of names tell their order, whatever the clock did; of other names the
      modification times do, so a clock that is set back may hide one. The last rotated file stays
      followed until the next rotation, for processes that reopen their log late.
    - Truncation, and replacement in place: the file is read from 0. With copytruncate, the unread
      rest is read from the copy, under the usual names. The copies must not match the patterns
      themselves, else they are new files. Where no copy is found, ``reportError`` says what may be
      lost. (Lines written between copy and truncation are lost by copytruncate itself.)
    - Deletion: a file that is followed is held open and read to its end.
    - Links: where one is switched, also while the receiver was down, the old target is read to its
      end and stays followed, and is not read again when the link is switched back.
    - Volumes: the device may have another number when it is attached again. It has to be attached
      before the start: files that are not there are reported, and read from 0 when they are back.
    - Files that editors and rsync replace are other files: they are read from 0.

    A line is stored once it ends in ``\n``; a last line without it when the file was renamed and
    left alone for ``rotate_wait_ms``, or deleted. A file that cannot be read, or whose next line is
    too long, is reported once, and the others are followed meanwhile.

    NULs before a line are no part of it: a copytruncate leaves them where the program writes
    without ``O_APPEND``. Those at the end of a file may be reserved space, so reading waits there;
    what is written later in front of a line that was read is not read. A byte order mark of UTF-8
    is not part of the first line. Files in UTF-16 and compressed ones are reported by name, and not
    read.

    Each file is held open. Those for which the process has no descriptors are reported, and read
    when it has; a new file is seen a little later the more there are, some seconds with 10,000.

    A file is told from a rewritten one by the first and last 256 bytes before the offset, or all if
    there are fewer: content that is equal there and at least as long is taken for the same file.
    A file with another inode is another file.

    Args:
        paths: a path or glob, or several; local files. Relative ones are resolved here, not where
            the receiver runs.
        from_beginning: whether files that exist at the very first start are read from 0, or from
            their last line end on. Files that appear later are always read from 0, and after the
            first store the stored position counts alone.
        poll_interval_ms: how often to look for new bytes and files; where a scan takes long, as
            with thousands of files, ten times what it takes.
        rotate_wait_ms: see above.
        max_line_bytes: a longer line stops the reading of its file.

    Raises:
        ConfigError: an argument cannot work.
    """

    def __init__(
        self,
        paths: Paths | Iterable[Paths],
        *,
        from_beginning: bool = True,
        poll_interval_ms: int = 100,
        rotate_wait_ms: int = 5_000,
        max_line_bytes: int = DEFAULT_MAX_LINE_BYTES,
    ) -> None:
        self._poll_interval_s = _check_ms("poll_interval_ms", poll_interval_ms, least=1) / 1000
        self._options = FollowOptions(
            patterns=_patterns(paths),
            from_beginning=from_beginning,
            rotate_wait_ms=_check_ms("rotate_wait_ms", rotate_wait_ms, least=0),
            max_line_bytes=check_max_line_bytes(max_line_bytes),
        )

    def __repr__(self) -> str:
        return f"TailReceiver({', '.join(self._options.patterns)})"

    def receive(self) -> None:
        """Scan and read in turn until the receiver has to end."""
        position = self.lastPosition()
        positions = MarkPositions(self.ownFiles(), position, self.reportError)
        marks = None if position is None else positions.marks()
        follower = Follower(self._options, marks, self.reportError)
        try:
            while not self.shallEnd():
                began_s = time.thread_time()
                follower.scan()
                scan_s = time.thread_time() - began_s
                interval_s = max(self._poll_interval_s, _SCAN_SHARE * scan_s)
                if not self._store_new_lines(follower, positions, interval_s):
                    self.pause(interval_s)
        finally:
            follower.close()

    def _store_new_lines(
        self, follower: Follower, positions: MarkPositions, interval_s: float
    ) -> bool:
        """Store available lines, for one interval at most; return whether there may be more."""
        next_scan_s = time.monotonic() + interval_s
        while time.monotonic() < next_scan_s:
            if not self._store_round(follower, positions):
                return False
        return True

    def _store_round(self, follower: Follower, positions: MarkPositions) -> bool:
        """Store available lines of each file, up to a size; return whether there were any."""

        def store(batches: list[pa.RecordBatch]) -> None:
            position = positions.after(follower.changes(), self.lastPosition())
            self.store(pa.Table.from_batches(batches), position)

        read: list[pa.RecordBatch] = []
        idle, size = True, 0
        for batch in follower.read_round():
            if self.shallEnd():
                return False
            idle = False
            read.append(batch)
            size += batch.nbytes
            if size >= _STORE_BYTES:
                store(read)
                read, size = [], 0
        if read:
            store(read)
        return not idle


def _patterns(paths: Paths | Iterable[Paths]) -> tuple[str, ...]:
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise ConfigError(
            "there is no path to follow",
            operation="set up tail receiver",
            hint="pass a path or glob, or a list of them",
        )
    return tuple(_absolute(path) for path in several)


def _absolute(path: Paths) -> str:
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text or "://" in text:
        raise ConfigError(
            f"{text!r} is not the path of a local file",
            operation="set up tail receiver",
            hint="pass for example '/var/log/app/*.log'",
        )
    return os.path.abspath(text)


def _check_ms(name: str, value: int, least: int) -> int:
    if not value >= least:
        raise ConfigError(
            f"{name} is {value}, below {least}",
            operation="set up tail receiver",
            hint="pass a number of milliseconds",
        )
    return value
