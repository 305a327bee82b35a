"""Why a JSON object does not fit the columns: which column, what it must be, what came. Pure.

Arrow's messages name neither the column nor the field in most cases, so the column is searched for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

Reader: TypeAlias = Callable[[bytes, pa.Schema, str], pa.Table]

_MAX_PARSED_BYTES = 64 << 10
"""Larger objects are not parsed in Python, where they would take many times their size."""
_MAX_SHOWN = 60


def describe_misfit(row: bytes, columns: pa.Schema, reason: str, read: Reader) -> str:
    """Return why an object does not fit the columns, given the reason that Arrow has for it.

    ``read`` parses lines into columns, as ``read_arrow`` does.
    """
    if "specified twice" in reason or _is_refused(row, pa.schema([]), read):
        return reason  # whatever the columns are
    try:
        values = json.loads(row) if len(row) <= _MAX_PARSED_BYTES else {}
    except (ValueError, RecursionError):
        values = {}
    if not _is_refused(row, columns, read):  # what it lacks is a column, so all that are there fit
        names = ", ".join(repr(name) for name in values if name not in columns.names)
        return f"unexpected column {names}; the columns are {columns.names}" if names else reason
    field = _first_refused(row, columns, read)
    came = f", not {_shown(values[field.name])}" if field.name in values else ""
    return f"column {field.name!r} must be {_wanted(field.type)}{came}"


def _is_refused(row: bytes, columns: pa.Schema, read: Reader) -> bool:
    try:
        read(row + b"\n", columns, "ignore")
    except pa.ArrowInvalid:
        return True
    return False


def _first_refused(row: bytes, columns: pa.Schema, read: Reader) -> pa.Field:
    """Return the first column that is refused, by halving: a row may have thousands."""
    fields = list(columns)
    while len(fields) > 1:
        middle = len(fields) // 2
        first = fields[:middle]
        fields = first if _is_refused(row, pa.schema(first), read) else fields[middle:]
    return fields[0]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _wanted(kind: pa.DataType) -> str:
    """Return a type, and how JSON has its values."""
    if pt.is_timestamp(kind):
        return f'{kind}: ISO 8601 text such as "2026-01-02T03:04:05Z", with a year of 4 digits'
    if pt.is_date32(kind):
        return f"{kind}: a number, days since 1970-01-01"
    if pt.is_date64(kind):
        return f"{kind}: a number, milliseconds since 1970-01-01"
    if pt.is_time(kind):
        return f"{kind}: a number, in this unit since midnight"
    if pt.is_decimal(kind):
        return f"{kind}: text or a number, with at most {kind.scale} decimals"
    if pt.is_integer(kind):
        return f"{kind}: a whole number in its range"
    if pt.is_floating(kind):
        return f"{kind}: a number"
    return str(kind)
