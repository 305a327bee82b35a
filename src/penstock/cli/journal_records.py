"""Records as text and as JSON, for people to look at."""

from __future__ import annotations

import base64
import io
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.journal import JournalStream
from penstock.journal.python_values import shown
from penstock.journal.reader import slice_ranges
from penstock.journal.record_reader import numbered_pieces
from penstock.model import OffsetRange

__all__ = ["as_json", "as_text", "records"]


def records(stream: JournalStream, wanted: OffsetRange) -> Iterator[tuple[int, Any]]:
    """Yield offsets and records of a range, a batch at a time.

    Pickled objects are read back only if they are plain data; see ``_plain_data``.
    """
    values = _values_of(stream.format.kind)
    for part in slice_ranges(stream, [wanted]):
        for offset, piece in numbered_pieces(stream, part):
            yield from enumerate(values(piece), offset)


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
    """Return the rows as dicts; text for what Python has no object for, such as a year 10000."""
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
    """Reads numbers, text, lists, dicts and the like; imports nothing, so runs nobody's code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


class _Unread:
    """Stands for a pickled object that is not read back."""

    def __init__(self, size_bytes: int, needs: str) -> None:
        self._text = f"<pickle of {size_bytes} bytes: {needs}>"

    def __repr__(self) -> str:
        return self._text


def _plain_data(data: bytes) -> Any:
    """Return the object in a pickle when that takes no code to be run, else what it is."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except pickle.UnpicklingError as e:
        return _Unread(len(data), str(e))
