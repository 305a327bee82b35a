"""Records as text and as JSON, for people to read."""

from __future__ import annotations

import base64
import io
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.errors import LogFormatError
from penstock.journal import JournalStream
from penstock.journal.layout import parse_writer
from penstock.journal.python_values import shown
from penstock.journal.reader import slice_ranges
from penstock.journal.record_reader import numbered_pieces
from penstock.journal.retention.consumer_files import read_consumers, retiring_offsets
from penstock.journal.retention.holes import first_whole
from penstock.journal.retention.retirement import retired_before
from penstock.model import OffsetRange


def records(stream: JournalStream, wanted: OffsetRange) -> Iterator[tuple[int, Any]]:
    """Yield offsets and records of a range, a batch at a time.

    Pickled objects are unpickled only if they are plain data; see ``_plain_data``.
    """
    values = _values_of(stream.format.kind)
    for part in slice_ranges(stream, [wanted]):
        for offset, piece in numbered_pieces(stream, part):
            yield from enumerate(values(piece), offset)


def behind_holes(stream: JournalStream, wanted: OffsetRange) -> OffsetRange:
    """Return a range without what a retirement that was cut off has left."""
    writer = parse_writer(wanted.partition)
    if writer is None or not (blocks := stream.blocks(writer)):
        return wanted
    with suppress(LogFormatError):  # of a consumer's file, which `verify` shows
        entries = read_consumers(stream).values()
        gone = retired_before(writer, entries, retiring_offsets(stream))
        first = max(wanted.start_offset, first_whole(stream, writer, blocks, gone))
        return replace(wanted, start_offset=min(first, wanted.end_offset))
    return wanted


def as_text(record: Any, kind: str) -> str:
    """Return a record of a stream of some kind (see RecordFormat) as one line to read."""
    if isinstance(record, str):
        return record
    if kind == "binary":
        return bytes(record).decode("utf-8", errors="backslashreplace")
    if kind == "arrow":
        return json.dumps(record, default=_json_default, ensure_ascii=False)
    return repr(record)


def as_json(writer: str, offset: int, record: Any) -> str:
    """Return a record as one line of JSON; bytes in base64, other values as text."""
    line = {"writer": writer, "offset": offset, "record": record}
    return json.dumps(line, default=_json_default)


def _json_default(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _values_of(kind: str) -> Callable[[pa.RecordBatch], Iterator[Any]]:
    if kind == "arrow":
        return _rows
    if kind == "pickle":
        return lambda batch: map(_plain_data, batch.column(0).to_pylist())
    return lambda batch: iter(batch.column(0).to_pylist())


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return the rows as dicts; text for values such as a year 10000, unknown to Python."""
    try:
        return iter(batch.to_pylist())
    except Exception:  # of Python, pandas, or the time zone's library
        rows = (batch.slice(row, 1) for row in range(batch.num_rows))
        return ({name: _value(row[name]) for name in batch.schema.names} for row in rows)


def _value(column: pa.Array) -> Any:
    try:
        return column[0].as_py()
    except Exception:
        return shown(column)


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, text, lists, dicts and similar; imports nothing, so it runs no other code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


class _Unread:
    """Replaces a pickled object that is not unpickled."""

    def __init__(self, size_bytes: int, needs: str) -> None:
        self._text = f"<pickle of {size_bytes} bytes: {needs}>"

    def __repr__(self) -> str:
        return self._text


def _plain_data(data: bytes) -> Any:
    """Return the object in a pickle if that runs no code, otherwise its description."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except pickle.UnpicklingError as e:
        return _Unread(len(data), str(e))
