"""How many records a body may hold, and how large: refused before it is parsed. Pure.

A body of a few kilobytes may expand to ``max_expanded_bytes``, and what a parser makes of that may
be many times larger: a Python object for each value of a record (28 times its text at most), a row
of null columns for each ``{}``. So, before anything is parsed:

- lines are counted; items of an array while they are read
- a JSON record has at most ``MAX_JSON_RECORD_BYTES``, as its values are objects while it is checked
- the columns that a body's objects have room for take at most ``MAX_COLUMN_BYTES``
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.receivers.http.answers import RefusedError

MAX_RECORDS = 1_000_000
"""In one request: they become durable together, in one block."""
MAX_JSON_RECORD_BYTES = 16 << 20
MAX_COLUMN_BYTES = 256 << 20

_NEWLINE, _QUOTE, _OPEN = b'\n"{'
_PIECE_BYTES = 64 << 10
_OFFSET_BYTES = 4


def check_count(count: int, what: str = "records") -> None:
    """Refuse a body that holds more than ``MAX_RECORDS``; raises RefusedError (413)."""
    if count > MAX_RECORDS:
        raise RefusedError(413, f"the body has over {MAX_RECORDS:,} {what}; send fewer in one")


def check_lines(body: bytes, *, json: bool) -> None:
    """Refuse too many lines, blank ones included, and lines of JSON that are too long.

    Raises:
        RefusedError: 413.
    """
    check_count(body.count(b"\n") + (not body.endswith(b"\n")), "lines")
    if not json or len(body) <= MAX_JSON_RECORD_BYTES:
        return
    ends = np.flatnonzero(np.frombuffer(body, np.uint8) == _NEWLINE)
    lengths = np.diff(np.concatenate(([-1], ends, [len(body)]))) - 1
    longest = int(lengths.argmax())
    if lengths[longest] > MAX_JSON_RECORD_BYTES:
        raise RefusedError(
            413,
            f"line {longest + 1} is larger than {MAX_JSON_RECORD_BYTES} bytes",
            line=longest + 1,
        )


def check_columns(text: bytes, row_bytes: int) -> None:
    """Refuse JSON whose objects need too much room as rows of ``row_bytes`` each.

    Raises:
        RefusedError: 413.
    """
    most = MAX_COLUMN_BYTES // max(row_bytes, 1)
    if text.count(b"{") > most and _count_objects(text) > most:
        raise RefusedError(
            413, f"the body has over {most:,} objects, too many for this number of columns"
        )


def _count_objects(text: bytes) -> int:
    """Return how many ``{`` are outside strings; one that does not end takes the rest of the text.

    Takes the same few passes over each piece whatever it holds, and holds the GIL for one piece at
    most: text that is not JSON comes here, too. A backslash outside a string, which no parser gets
    past, escapes as it does within one.
    """
    count, is_inside, cut = 0, 0, b""
    for start in range(0, len(text), _PIECE_BYTES):
        piece = (cut + text[start : start + _PIECE_BYTES]).replace(b"\\\\", b"")
        cut = b"\\" if piece.endswith(b"\\") else b""  # escapes the next piece's first byte
        data = np.frombuffer(piece.replace(b'\\"', b""), np.uint8)
        quotes = data == _QUOTE
        is_in_string = (np.cumsum(quotes, dtype=np.uint8) + np.uint8(is_inside)) & 1 == 1
        count += int(np.count_nonzero((data == _OPEN) & ~is_in_string))
        is_inside = (is_inside + int(np.count_nonzero(quotes))) & 1
    return count


def widest_row(schema: pa.Schema) -> int:
    """Return the most bytes that one JSON object takes in columns of a schema, if it is empty."""
    rows = [pa.struct(list(schema))]
    widest = 0
    while rows:
        row = rows.pop()
        widest = max(widest, _fixed_bytes(row, rows))
    return widest


def _fixed_bytes(kind: pa.DataType, rows: list[pa.StructType]) -> int:
    """Return what a null of a type takes; structs within lists are added to ``rows``."""
    if pa.types.is_struct(kind):
        return sum(_fixed_bytes(field.type, rows) for field in kind) + 1
    if pa.types.is_map(kind):
        rows.append(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        return _OFFSET_BYTES + 1
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _fixed_bytes(kind.value_type, rows) + 1
    if pa.types.is_nested(kind):
        rows.append(pa.struct([("item", kind.value_type)]))
        return 2 * _OFFSET_BYTES + 1
    try:
        return int(-(-kind.bit_width // 8)) + 1
    except ValueError:  # of no fixed width: text, bytes
        return 2 * _OFFSET_BYTES + 1
