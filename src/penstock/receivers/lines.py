r"""Bytes to Arrow lines, vectorised: no Python code runs per record.

What a line is (the same for every source of penstock):

- It ends at ``\n``; one ``\r`` before that belongs to the line end. A lone ``\r`` is data, which is
  where we differ from Java's ``BufferedReader`` and so from Spark's socket source: the redrawn
  lines of a progress bar stay one record.
- It is UTF-8. What is not valid becomes U+FFFD, as in Spark; only a chunk that holds such bytes
  pays for it.
- A byte order mark in front of the first line of a file is not part of it. Files in UTF-16 and
  compressed ones are no text: they are refused by name (``other_than_text``).
- It is at most ``max_line_bytes`` long (without its ``\n``), however its bytes were cut into reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigError, ReceiverError

DEFAULT_MAX_LINE_BYTES = 16 * 1024 * 1024

LINES_SCHEMA = pa.schema([pa.field("value", pa.string(), nullable=False)])

# Arrow's string offsets are 32 bits wide, and a replaced byte grows to three: one read and one line
# of this length still fit, with room to spare.
_LARGEST_MAX_LINE_BYTES = 256 * 1024 * 1024

_NEWLINE = ord("\n")


BYTE_ORDER_MARK = b"\xef\xbb\xbf"

HEAD_BYTES = 8
"""How much of a file's beginning tells whether it is text."""

_BEGINNINGS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x1f\x8b\x08": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\xfd7zXZ\0": "compressed with xz",
}


def other_than_text(head: bytes) -> str | None:
    """Return what a file is that begins like this and is no UTF-8 text, else None.

    Args:
        head: its first ``HEAD_BYTES``, or fewer if it is shorter.
    """
    for beginning, kind in _BEGINNINGS.items():
        if head.startswith(beginning):
            return kind
    # Without a byte order mark: letters of ASCII, of which one byte is 0.
    halves = (head[0:HEAD_BYTES:2], head[1:HEAD_BYTES:2])
    without_letters = bytes(HEAD_BYTES // 2)
    is_utf16 = without_letters in halves and any(half and 0 not in half for half in halves)
    return "UTF-16" if is_utf16 else None


def not_text(kind: str, path: str) -> ReceiverError:
    """Return the error for a file that is not UTF-8 text, to be raised or reported."""
    hint = "write or convert it as UTF-8 (iconv -f UTF-16 -t UTF-8)"
    if kind != "UTF-16":
        hint = "leave such files out of the pattern, or unpack them first"
    return ReceiverError(
        f"the file is {kind}, not UTF-8 text, and is not read",
        operation="split lines",
        path=path,
        hint=hint,
    )


def check_max_line_bytes(max_line_bytes: int) -> int:
    """Return ``max_line_bytes`` if it can be a limit, else raise ConfigError."""
    if not 1 <= max_line_bytes <= _LARGEST_MAX_LINE_BYTES:
        raise ConfigError(
            f"max_line_bytes is {max_line_bytes}, not within 1 and {_LARGEST_MAX_LINE_BYTES}",
            operation="set up receiver",
            hint=f"leave it out for {DEFAULT_MAX_LINE_BYTES} (16 MiB)",
        )
    return max_line_bytes


def line_too_long(max_line_bytes: int, path: str | None = None) -> ReceiverError:
    """Return the error for a line beyond the limit, to be raised or reported."""
    return ReceiverError(
        f"a line is longer than {max_line_bytes} bytes",
        operation="split lines",
        path=path,
        hint="raise max_line_bytes (--max-line-bytes of penstock ingest), or check that the source "
        "is text whose lines end with \\n",
    )


def split_lines(data: bytes) -> pa.RecordBatch:
    r"""Return the lines of ``data``, which must end with ``\n``, as a batch of LINES_SCHEMA."""
    # A search for one byte is memchr's, and 30 times as fast as one for two bytes.
    if b"\r" in data and b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    lines = _as_strings(data)
    try:
        lines.validate(full=True)  # checks each line on its own, so no character spans two
    except pa.ArrowInvalid:
        lines = _as_strings(data.decode("utf-8", errors="replace").encode())
    return pa.record_batch([lines], schema=LINES_SCHEMA)


def _as_strings(data: bytes) -> pa.StringArray:
    offsets = np.array([0, len(data) - 1], np.int32)  # without the last newline
    whole = pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))
    return pc.split_pattern(whole, "\n").values


def complete_before_long_line(data: bytes, max_line_bytes: int) -> int:
    r"""Return how many bytes of ``data`` come before its first line that is too long.

    ``data`` must end with ``\n``; the answer is its length when every line is within the limit.
    """
    if len(data) <= max_line_bytes:
        return len(data)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    too_long = np.flatnonzero(np.diff(ends, prepend=-1) - 1 > max_line_bytes)
    if not len(too_long):
        return len(data)
    first = int(too_long[0])
    return int(ends[first - 1]) + 1 if first else 0


class LineSplitter:
    """Splits a stream of chunks, cut anywhere, into lines; carries the unfinished line over.

    Holds at most one chunk and ``max_line_bytes``; each byte is copied a fixed number of times,
    however many chunks a line spans.
    """

    def __init__(self, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._max_line_bytes = check_max_line_bytes(max_line_bytes)
        self._unfinished = bytearray()

    def feed(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        """Take the next chunk; yield the lines that it completes, at most one batch.

        A generator, so that the lines before one that is too long are out before the error is.

        Raises:
            ReceiverError: a line is longer than the limit; the splitter is of no further use.
        """
        end = chunk.rfind(b"\n") + 1
        if end:
            lines = b"".join((self._unfinished, memoryview(chunk)[:end]))
            self._unfinished = bytearray(memoryview(chunk)[end:])
            kept = complete_before_long_line(lines, self._max_line_bytes)
            if kept:
                yield split_lines(lines[:kept])
            if kept < len(lines):
                raise line_too_long(self._max_line_bytes)
        else:
            self._unfinished += chunk
        if len(self._unfinished) > self._max_line_bytes:
            raise line_too_long(self._max_line_bytes)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the line that the end of the stream completes, if there is one."""
        if self._unfinished:
            yield from self.feed(b"\n")
