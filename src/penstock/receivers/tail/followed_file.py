"""One followed file: open descriptor, mark, and reads of whole lines."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import replace

import pyarrow as pa

from penstock.receivers.lines import (
    BYTE_ORDER_MARK,
    HEAD_BYTES,
    complete_before_long_line,
    line_too_long,
    not_text,
    other_than_text,
    split_lines,
)
from penstock.receivers.tail.follow import (
    FINGERPRINT_BYTES,
    FileId,
    FollowOptions,
    Glance,
    Mark,
    Place,
    fingerprint,
)

_READ_BYTES = 4 * 1024 * 1024
_NULS_BEFORE_LINES = re.compile(rb"^\0+", re.MULTILINE)


def file_id(facts: os.stat_result) -> FileId:
    """Return the identity in a stat result."""
    return FileId(facts.st_dev, facts.st_ino)


class FollowedFile:
    """A file, known by its inode, of which everything before ``mark.offset`` is stored.

    Invariant: a read that moves the mark is taken only if the bytes before the mark were still
    intact *after* it, so lines never come from two contents of one file. Where there are none,
    those that the last scan saw count: a content that came after it may have had one before that
    only a copy holds. The fingerprint of the new mark is made of bytes in memory, so it speaks of
    what was stored, whatever the disk holds then.

    An unfinished line is not kept in memory: the mark stays before it, and once its end has come it
    is read as a whole. ``_searched`` remembers how much of it holds no line end, so a long line
    that grows slowly is searched once, not at every scan.

    NULs before a line are no part of it: they are left by copytruncate where a program writes at
    its own offset, and by crashes. Those with nothing behind them may be space that is reserved, so
    the mark stays before them.

    Attributes:
        mark: how far the file is stored.
        place: where it was at the last scan; set by a scan.
        at_end: whether the last read found nothing after the mark but an unfinished line.
        is_stuck: whether the next line is too long, or the file no text; nothing is read then.
        idle_since_s: when (monotonic clock) it was last seen to have grown.

    Args:
        mark: where to read on.
        options: a line longer than ``max_line_bytes`` stops the reading of this file.
        begin_at_end: whether to move the mark behind the last line end when the file is opened.
    """

    def __init__(
        self,
        mark: Mark,
        options: FollowOptions,
        *,
        begin_at_end: bool = False,
    ) -> None:
        self.mark = mark
        self.place = Place.FOLLOWED
        self.idle_since_s = time.monotonic()
        self._max_line_bytes = options.max_line_bytes
        self._begin_at_end = begin_at_end
        self._descriptor: int | None = None
        self._reset()

    def _reset(self) -> None:
        self._head = b""
        self._tail = b""
        self._searched = 0
        self._is_text = False
        self._is_refused = False
        self._verified: tuple[int, int] | None = None
        self._only_nuls: tuple[int, int, int] | None = None
        self._glance: Glance | None = None
        self.at_end = False
        self.is_stuck = False

    def rename(self, path: str, name: str) -> None:
        """Take note of the path at which it is followed, and the name that a pattern has for it."""
        if (path, name, False) != (self.mark.path, self.mark.name, self.mark.is_whole):
            self.mark = replace(self.mark, path=path, name=name, is_whole=False)

    def identify(self, found: FileId) -> None:
        """Take note which file the stored mark speaks of."""
        self.mark = replace(self.mark, file_id=found)

    @property
    def is_read(self) -> bool:
        """Whether the last read found nothing after the mark."""
        return self.at_end and not self._searched

    def note_whole(self) -> None:
        """Take note that it was read to its end and left alone, without its name."""
        self.mark = replace(self.mark, is_whole=True)

    @property
    def is_open(self) -> bool:
        """Whether the file is held open, so that it can be read even when its name is gone."""
        return self._descriptor is not None

    @property
    def has_begun(self) -> bool:
        """Whether the mark is settled: false while a file to begin at the end was never opened."""
        return not self._begin_at_end

    def open(self, path: str) -> bool:
        """Open the file; return False when ``path`` is another file by now.

        Raises:
            OSError: it cannot be opened.
        """
        # Not blocking, should the path have become a FIFO since it was scanned.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._descriptor = descriptor
        facts = os.fstat(descriptor)
        if file_id(facts) != self.mark.file_id or not stat.S_ISREG(facts.st_mode):
            self.close()
            return False
        if self._begin_at_end:
            try:
                self._skip_to_end(facts)
            except OSError:
                self.close()  # else it would be read from 0
                raise
            self._begin_at_end = False
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def facts(self) -> os.stat_result:
        """Return what the file system says of the open file."""
        return os.fstat(self._opened())

    def is_intact(self) -> bool:
        """Whether the bytes before the mark are still those that were stored."""
        facts = self.facts()
        if facts.st_size < self.mark.offset:
            return False
        if self._verified == (facts.st_size, facts.st_mtime_ns):
            return True
        head, tail = self._window(self.mark.offset)
        if fingerprint(head, tail) != self.mark.crc:
            return False
        self._head, self._tail = head, tail
        self._verified = (facts.st_size, facts.st_mtime_ns)
        return True

    def glance(self) -> Glance:
        """Return what the file holds now, as far as ``read`` may need it."""
        facts = self.facts()
        if 0 < self.mark.offset <= facts.st_size:
            return Glance(facts.st_mtime_ns)
        return Glance(facts.st_mtime_ns, facts.st_size, self.fingerprint_at(facts.st_size))

    def fingerprint_at(self, offset: int) -> int:
        """Return the fingerprint of the bytes before ``offset``, as they are on disk now."""
        return fingerprint(*self._window(offset))

    def start_over(self, glance: Glance) -> None:
        """Take the file for a new one, to be read from 0, as of a scan."""
        self._reset()
        self.mark = replace(self.mark, offset=0, crc=fingerprint(b"", b""))
        self.note_scan(glance)

    def note_scan(self, glance: Glance) -> None:
        """Note the facts of a scan that determined what happened to earlier content."""
        self._glance = glance
        if glance.size < self._searched:
            self._searched = 0  # that was in another content
        self._set_time(glance.mtime_ns)

    def read(self) -> pa.RecordBatch | None:
        """Return the next whole lines and move the mark behind them; None when there are none.

        Raises:
            OSError: the read failed; the mark has not moved.
            ReceiverError: the next line is too long, or the file is no text, said once; the mark
                stays before it.
        """
        if self._descriptor is None or not self._may_be_read():
            return None
        facts = self.facts()
        self.at_end = facts.st_size <= self.mark.offset + self._searched
        if self.at_end:
            self._note_time(facts)
            return None
        self._check_text()
        self._pass_nuls(facts)
        searched = self._searched
        lines = self._next_lines(facts)
        if lines or self._searched > searched:
            self.idle_since_s = time.monotonic()
        if not lines:
            self._note_time(facts)
            return None
        if not self._is_continued():
            return None
        batch = self._split(lines)
        self._advance(lines, len(lines), facts)
        return batch

    def _pass_nuls(self, facts: os.stat_result) -> None:
        """Move the mark behind NULs that are where a line begins, if something is behind them."""
        offset = self.mark.offset
        if os.pread(self._opened(), 1, offset) != b"\0":
            return
        end = self._next_written(offset, facts)
        if end is not None and self._is_continued():
            self._advance(b"\0" * min(end - offset, FINGERPRINT_BYTES), end - offset, facts)

    def _next_written(self, position: int, facts: os.stat_result) -> int | None:
        """Return where the NULs from a position on end; None if nothing is written behind them."""
        as_of = position, facts.st_size, facts.st_mtime_ns
        if as_of == self._only_nuls:
            return None
        while position < facts.st_size:
            try:
                position = os.lseek(self._opened(), position, os.SEEK_DATA)
                chunk = os.pread(self._opened(), _READ_BYTES, position)
            except OSError:  # ENXIO: no data behind this, as far as the file system knows
                break
            if written := chunk.lstrip(b"\0"):
                return position + len(chunk) - len(written)
            position += max(1, len(chunk))
        self._only_nuls = as_of
        return None

    def read_rest(self) -> pa.RecordBatch | None:
        """Return what follows the last line end as a line; for a file that grows no more."""
        if self._descriptor is None or self.is_stuck or not self._searched:
            return None
        facts = self.facts()
        rest = os.pread(self._descriptor, self._searched, self.mark.offset)
        if rest.strip(b"\0") in (b"", BYTE_ORDER_MARK) or not self._is_continued():
            return None
        batch = self._split(rest + b"\n")
        self._advance(rest, len(rest), facts)
        return batch

    def _split(self, lines: bytes) -> pa.RecordBatch:
        lines = lines if self.mark.offset else lines.removeprefix(BYTE_ORDER_MARK)
        return split_lines(_NULS_BEFORE_LINES.sub(b"", lines) if b"\0" in lines else lines)

    def _check_text(self) -> None:
        if self._is_text:
            return
        head = self._beginning()
        self._is_text = len(head) == HEAD_BYTES and b"\0" not in head  # else more may come
        if kind := other_than_text(head):
            self.is_stuck = self._is_refused = True
            raise not_text(kind, self.mark.path)

    def _may_be_read(self) -> bool:
        if self._is_refused and other_than_text(self._beginning()) is None:
            self.is_stuck = self._is_refused = False  # it was converted, in place
        return not self.is_stuck

    def _beginning(self) -> bytes:
        return os.pread(self._opened(), HEAD_BYTES, 0)

    def _is_continued(self) -> bool:
        """Whether the data just read continues the stored data, or the data of the last scan."""
        if self.mark.offset:
            return self.is_intact()
        facts, seen = self.facts(), self._glance
        if seen is None or not seen.size:
            return facts.st_mtime_ns == self.mark.mtime_ns
        return facts.st_size >= seen.size and self.fingerprint_at(seen.size) == seen.crc

    def _next_lines(self, facts: os.stat_result) -> bytes:
        """Return whole lines after the mark, at least one if there is one."""
        offset = self.mark.offset
        while True:
            position = offset + self._searched
            chunk = self._written(_READ_BYTES, position)
            end = chunk.rfind(b"\n") + 1
            if end:
                break
            if not chunk:
                behind = self._next_written(position, facts)
                if behind is None:
                    self.at_end = True
                    return b""
                self._searched += behind - position
            self._searched += len(chunk)
            if self._searched > self._max_line_bytes:
                self._stick()
        if self._searched:
            chunk = self._written(self._searched + end, offset)
            end = chunk.rfind(b"\n") + 1
        kept = complete_before_long_line(chunk[:end], self._max_line_bytes)
        if end and not kept:
            self._stick()
        return chunk[:kept]

    def _written(self, count: int, position: int) -> bytes:
        """Return what is written from a position on, without NULs at the end.

        What one read sees as NULs before other bytes may have been written meanwhile. A second read
        shows all that was written before the last byte that the first one saw.
        """
        data = os.pread(self._opened(), count, position)
        if b"\0" not in data:
            return data
        return os.pread(self._opened(), len(data.rstrip(b"\0")), position)

    def _stick(self) -> None:
        self.is_stuck = True
        raise line_too_long(self._max_line_bytes, self.mark.path)

    def _advance(self, stored: bytes, size: int, facts_before: os.stat_result) -> None:
        self._head = (self._head + stored[:FINGERPRINT_BYTES])[:FINGERPRINT_BYTES]
        self._tail = (self._tail + stored[-FINGERPRINT_BYTES:])[-FINGERPRINT_BYTES:]
        self._searched = 0
        self.mark = replace(
            self.mark,
            offset=self.mark.offset + size,
            crc=fingerprint(self._head, self._tail),
            mtime_ns=facts_before.st_mtime_ns,
            is_whole=False,
        )

    def _note_time(self, facts: os.stat_result) -> None:
        # While nothing is stored, only the time tells a scan that the content may have been moved
        # away since the previous scan; so then it is for the scan to note (``note_scan``). And the
        # time of a truncation is not the mark's: the copy made before it would look like an older
        # one, and what only the copy holds would never be read.
        if self.mark.offset and self.is_intact():
            self._set_time(facts.st_mtime_ns)

    def _set_time(self, mtime_ns: int) -> None:
        if mtime_ns != self.mark.mtime_ns:
            self.mark = replace(self.mark, mtime_ns=mtime_ns)

    def _skip_to_end(self, facts: os.stat_result) -> None:
        offset = self._after_last_line_end(facts.st_size)
        self._head, self._tail = self._window(offset)
        self.mark = replace(self.mark, offset=offset, crc=fingerprint(self._head, self._tail))

    def _after_last_line_end(self, size: int) -> int:
        """Search backwards, so that a line under way is delivered as a whole, later."""
        end = size
        while end > 0:
            start = max(0, end - _READ_BYTES)
            newline = os.pread(self._opened(), end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0

    def _window(self, offset: int) -> tuple[bytes, bytes]:
        count = min(offset, FINGERPRINT_BYTES)
        descriptor = self._opened()
        return os.pread(descriptor, count, 0), os.pread(descriptor, count, offset - count)

    def _opened(self) -> int:
        assert self._descriptor is not None, "read of a file that is not open"
        return self._descriptor
