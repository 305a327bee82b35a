"""Bytes of a file that nobody has written yet: they read as NULs.

They are left by copytruncate where a program writes at its own offset (without O_APPEND), by
programs that reserve space before they write, and by a crash. They may be written at any time, then
without a change of the file's size, and of its times where the program maps the file. So:

1. No line begins with a NUL. Reading stops there until something is written, or until nothing was
   for a while and there are later bytes: then these are what comes next.
2. What one read sees as NULs before other bytes may have been written meanwhile. A second read
   shows all that was written before the last byte that the first one saw.

Within a line, NULs are data.
"""

from __future__ import annotations

import os
import time

_CHUNK_BYTES = 4 * 1024 * 1024
_END_BYTES = 64 * 1024


def read_written(descriptor: int, count: int, position: int) -> tuple[bytes, bool]:
    """Return what is written from a position on, without NULs at the end, and if any are in it."""
    data = os.pread(descriptor, count, position)
    if b"\0" not in data:
        return data, False
    return os.pread(descriptor, len(data.rstrip(b"\0")), position), True


def before_hole(lines: bytes) -> bytes:
    """Return the whole lines before the first one that begins with a NUL."""
    if lines.startswith(b"\0"):
        return b""
    at = lines.find(b"\n\0")
    return lines if at < 0 else lines[: at + 1]


class Hole:
    """The place in a file at which nobody has written yet.

    Args:
        wait_ms: how long nothing must be written there before it is passed over.
    """

    def __init__(self, wait_ms: int) -> None:
        self._wait_s = wait_ms / 1000
        self._start = -1
        self._since_s = 0.0
        self._written = 0
        """How far the file was written when the hole was first seen."""
        self._settled = 0
        """All holes before this have been there for long enough."""
        self._empty_as_of: tuple[int, int] | None = None

    def was_left_alone(self, descriptor: int, start: int) -> bool:
        """Whether it has begun at this place for long enough."""
        if start != self._start:
            self._start, self._since_s, self._empty_as_of = start, time.monotonic(), None
            self._written = _written_size(descriptor)
        if time.monotonic() - self._since_s >= self._wait_s:
            self._settled = max(self._settled, self._written)
            return True
        return start < self._settled

    @property
    def has_nothing_behind(self) -> bool:
        """Whether the last search for its end found none."""
        return self._empty_as_of is not None

    def end(self, descriptor: int, facts: os.stat_result) -> int | None:
        """Return where it ends; None when nothing is written behind it, or something in it."""
        as_of = facts.st_size, facts.st_mtime_ns
        if as_of == self._empty_as_of:
            return None
        found = _next_written(descriptor, self._start, facts.st_size)
        if found is None:
            self._empty_as_of = as_of
        elif os.pread(descriptor, 1, self._start) != b"\0":
            return None
        return found


def _next_written(descriptor: int, position: int, size: int) -> int | None:
    while position < size:
        try:
            position = os.lseek(descriptor, position, os.SEEK_DATA)
            chunk = os.pread(descriptor, _CHUNK_BYTES, position)
        except OSError:  # ENXIO: no data behind this, as far as the file system knows
            break
        if written := chunk.lstrip(b"\0"):
            return position + len(chunk) - len(written)
        position += max(1, len(chunk))
    return None


def _written_size(descriptor: int) -> int:
    """Return the size without the NULs at the end; 0 when they are many."""
    size = os.fstat(descriptor).st_size
    begin = max(0, size - _END_BYTES)
    written = os.pread(descriptor, _END_BYTES, begin).rstrip(b"\0")
    return begin + len(written) if written else 0
