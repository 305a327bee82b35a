"""JSON bodies as text: which records they hold, checked, and where they are wrong. Pure.

Records stay the text that was sent: numbers keep their digits, keys their order.

Large NDJSON bodies are checked by Arrow's parser, at hundreds of megabytes a second; Python's takes
one value at a time. Arrow's is not a validator of lines, so it is asked only when ``_suits_arrow``
holds, which makes its verdict complete:

- Every line begins with ``{`` and ends with ``}``. Within an unfinished value no ``{`` can follow a
  ``}``, so every line ends with a finished value, and as many values as lines means one on each.
  (A document that begins with ``null`` crashes that parser: none gets there.)
- There is no bare ``NaN`` or ``Inf``, which it takes for numbers, and the body is UTF-8.

Python's parser handles everything else, and everything that it refuses, line by line.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from penstock.receivers.http import record_limits
from penstock.receivers.http.answers import RefusedError
from penstock.receivers.http.record_limits import MAX_JSON_RECORD_BYTES, check_count

_SMALL_BYTES = 4096
"""Up to here Python's parser is done before Arrow's has begun."""
_BLOCK_BYTES = 1 << 20
_SPACE = b" \t\r\n"
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_NOT_NUMBERS = (re.compile(b"NaN"), re.compile(b"Inf"))
_BEFORE_VALUES = b":,[- \t\r\n"
_BYTE_ORDER_MARK = "\ufeff"
_NO_COLUMNS = pa.schema([])

_skip_space = re.compile(r"[ \t\r\n]*").match


class Lines(NamedTuple):
    """NDJSON: one value a line, without space around it."""

    text: bytes
    r"""Ends with ``\n``."""
    total: int
    numbers: list[int] | None = None
    """Of the body's lines, from 1; None when it is simply all of them."""

    def number(self, index: int) -> int:
        """Return the number of the line that value ``index`` stood on."""
        return index + 1 if self.numbers is None else self.numbers[index]


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


# Numbers are only checked, so that none is too large.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)


def checked_value(body: bytes) -> str:
    """Return the text of a body that is one JSON value.

    Raises:
        RefusedError: 400, line 1.
    """
    return _checked(body.strip(_SPACE), 1)


def is_one_value(body: bytes) -> bool:
    """Whether a body is one JSON object or array as a whole, over however many lines."""
    body = body.strip(_SPACE)
    ends = body[:1] + body[-1:]
    if ends not in (b"{}", b"[]") or len(body) > MAX_JSON_RECORD_BYTES:
        return False
    try:
        text = body.decode()
        _, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return end == len(text)


def likely_lines(body: bytes) -> Lines | None:
    """Return the lines of a large body that Arrow's parser may be asked about, else None.

    They are checked when that parser finds as many values in them as there are lines.
    """
    if len(body) <= _SMALL_BYTES:
        return None
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n")
    # Bodies that are as they should be are not copied.
    text = body if body.endswith(b"}\n") else body.rstrip(_SPACE) + b"\n"
    return Lines(text, text.count(b"\n")) if _suits_arrow(text) else None


def checked_lines(body: bytes) -> Lines:
    """Return the values of an NDJSON body; blank lines are passed over.

    Raises:
        RefusedError: 400 with the number of the first line that is not one JSON value.
    """
    values, numbers = [], []
    for number, line in enumerate(body.split(b"\n"), start=1):
        if value := line.strip(_SPACE):
            _checked(value, number)
            values.append(value)
            numbers.append(number)
    return Lines(b"\n".join([*values, b""]), len(values), numbers)


def are_values(lines: Lines) -> bool:
    """Whether each of likely lines is one JSON value; when not, one may be all the same."""
    try:
        return int(read_arrow(lines.text, _NO_COLUMNS, "ignore").num_rows) == lines.total
    except pa.ArrowInvalid:
        return False


def array_items(body: bytes) -> list[str]:
    """Return the items of a body that is a JSON array, as they were written; any other value as is.

    Raises:
        RefusedError: 400 with the index of the first item that is not JSON, 413 when there are too
            many, or one is too large.
    """
    start = len(body) - len(body.lstrip(_SPACE))
    found = _items(body, start) if body.startswith(b"[", start) else _lone_value(body, start)
    items = list(islice(found, record_limits.MAX_RECORDS + 1))
    check_count(len(items))
    return items


def first_no_object(text: bytes) -> int | None:
    """Return the index of the first line that holds another kind of value, None if none does."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    others = np.flatnonzero(data[np.concatenate(([0], ends[:-1] + 1))] != _OPEN)
    return int(others[0]) if len(others) else None


def read_arrow(text: bytes, schema: pa.Schema, unexpected: str) -> pa.Table:
    """Parse lines, checked to be an object each, into columns.

    Raises:
        pyarrow.ArrowInvalid: a line does not fit; it is not told which.
    """
    parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    try:
        return pj.read_json(pa.BufferReader(text), _read_options(_BLOCK_BYTES), parse)
    except pa.ArrowInvalid:
        if len(text) <= _BLOCK_BYTES:
            raise
        # Perhaps only because a line is longer than a block.
        return pj.read_json(pa.BufferReader(text), _read_options(len(text)), parse)


def _read_options(block_bytes: int) -> pj.ReadOptions:
    return pj.ReadOptions(use_threads=False, block_size=block_bytes)


def _suits_arrow(text: bytes) -> bool:
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _NEWLINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    if not ((data[starts] == _OPEN).all() and (data[ends - 1] == _CLOSE).all()):
        return False
    if any(
        text[found.start() - 1] in _BEFORE_VALUES
        for word in _NOT_NUMBERS
        for found in word.finditer(text)
    ):
        return False
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _checked(value: bytes, number: int) -> str:
    try:
        text = value.decode()
        _decoder.decode(text)
    except (ValueError, RecursionError) as e:
        raise RefusedError(400, f"line {number} is not JSON: {_reason(e)}", line=number) from e
    return text


def _lone_value(body: bytes, start: int) -> Iterator[str]:
    window = _Window(body, start)
    if not window.is_last:
        raise _too_large(0)
    if not window.text:
        return
    item = _checked_item(window.text, 0, 0)
    if _after_space(window.text, len(item)) < len(window.text):
        raise RefusedError(
            400,
            "the value is followed by other text: a body of several values, each on a line, is "
            "application/x-ndjson (or what the receiver's content_types say)",
            index=0,
        )
    yield item


def _items(body: bytes, start: int) -> Iterator[str]:
    """Yield the items of an array that begins there; holds as much text as one may have."""
    window = _Window(body, start)
    text = window.text
    at = _after_space(text, 1)
    if window.ends(at):
        return
    index = 0
    while True:
        try:
            item = _checked_item(text, at, index)
            after = _after_space(text, at + len(item))
            if is_end := not text.startswith(",", after):
                window.check_end(after, index)
        except RefusedError as refusal:
            # Perhaps only because the window cuts it off: it is parsed again from its start.
            if window.is_last:
                raise
            if at == 0:
                raise _too_large(index) from refusal
            window = window.moved_to(at)
            text = window.text
            at = _after_space(text, 0)
            continue
        yield item
        if is_end:
            return
        at = _after_space(text, after + 1)
        index += 1


class _Window:
    """Part of a body as text: as much as one record may have, from a byte on."""

    def __init__(self, body: bytes, start: int) -> None:
        part = body[start : start + MAX_JSON_RECORD_BYTES + 1]
        self.is_last = start + len(part) == len(body)
        try:
            self.text, _ = codecs.utf_8_decode(part, "strict", self.is_last)
        except UnicodeDecodeError as e:
            at = start + e.start
            raise RefusedError(400, f"the body is not UTF-8: {e.reason} at byte {at}") from e
        self._body = body
        self._start = start

    def moved_to(self, at: int) -> _Window:
        """Return the window that begins with a character of this one."""
        return _Window(self._body, self._byte(at))

    def ends(self, at: int) -> bool:
        """Whether the array's end has been read, with nothing after it."""
        if not self.text.startswith("]", at):
            return False
        return not self._body[self._byte(at + 1) :].strip(_SPACE)

    def check_end(self, at: int, index: int) -> None:
        """Raise RefusedError unless the array ends there, after item ``index``."""
        if not self.ends(at):
            raise RefusedError(
                400, f"item {index} is followed by neither ',' nor the end", index=index
            )

    def _byte(self, at: int) -> int:
        return self._start + len(self.text[:at].encode())


def _too_large(index: int) -> RefusedError:
    most = MAX_JSON_RECORD_BYTES
    return RefusedError(413, f"item {index} is not JSON of at most {most} bytes", index=index)


def _checked_item(text: str, at: int, index: int) -> str:
    try:
        _, end = _decoder.raw_decode(text, at)
    except (ValueError, RecursionError) as e:
        raise RefusedError(400, f"item {index} is not JSON: {_reason(e)}", index=index) from e
    return text[at:end]


def _after_space(text: str, at: int) -> int:
    found = _skip_space(text, at)
    assert found is not None  # it matches nothing, too
    return found.end()


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        if error.doc.startswith(_BYTE_ORDER_MARK):
            return "it begins with a byte order mark"
        return f"{error.msg}, column {error.colno}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
