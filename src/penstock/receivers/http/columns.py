"""JSON objects as columns: what pyarrow.json converts, and times as clients write them. Pure.

pyarrow.json takes ISO 8601 with no more digits of a second than the unit has. Clients have one way
of writing for all times: .NET has seven digits, Go and Java up to nine. Such times are cut to the
unit: digits beyond it are dropped, whatever they are, so a time is never later than what was sent.
``t`` and ``z`` are taken as ``T`` and ``Z`` (RFC 3339, 5.6).

Most bodies need none of this, so they are parsed without it first. Where that fails, times are
parsed as text, and converted then.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.receivers.http.json_text import read_arrow

_DIGITS = {"s": 0, "ms": 3, "us": 6}
_DAY = r"\d{4}-\d\d-\d\d"
_HAS_ZONE = r"[T ]\d\d[\d:.]*(?:Z|[+-]\d\d(?::?\d\d)?)$"


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the columns with nulls let in, also within: so they are told from other flaws."""
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in schema])


def read_columns(text: bytes, columns: pa.Schema, unexpected: str, *, cut: bool) -> pa.Table:
    """Parse lines, checked to be an object each, into nullable columns.

    Args:
        text: the lines.
        columns: what ``nullable`` returned.
        unexpected: what is done about other columns, as pyarrow.json names it.
        cut: whether times are cut to the unit; otherwise finer ones are refused.

    Raises:
        pyarrow.ArrowInvalid: a line does not fit; it is not told which.
    """
    texts = pa.schema([pa.field(field.name, _as_text(field.type)) for field in columns])
    try:
        return read_arrow(text, columns, unexpected)
    except pa.ArrowInvalid:
        if texts.equals(columns):
            raise
    table = read_arrow(text, texts, unexpected)
    return as_columns(table, columns, cut=cut)


def as_columns(table: pa.Table, columns: pa.Schema, *, cut: bool = False) -> pa.Table:
    """Return a table whose columns are exactly those; text becomes times.

    Raises:
        pyarrow.ArrowInvalid: a text is not a time.
    """
    arrays = [
        pa.chunked_array([_converted(c, field, cut) for c in column.chunks], field.type)
        for column, field in zip(table.columns, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def missing_value(table: pa.Table, columns: pa.Schema) -> str:
    """Return the path of the first value that is null and may not be, an empty text if none is.

    ``table`` has these columns, but nullable.
    """
    found = (_missing(chunk, field) for field in columns for chunk in table[field.name].chunks)
    return next(filter(None, found), "")


def _missing(array: pa.Array, field: pa.Field) -> str:
    if array.null_count:
        if not field.nullable:
            return str(field.name)
        array = array.drop_null()
    parts = zip(_parts(array), _fields(field.type), strict=True)
    found = next(filter(None, (_missing(part, each) for part, each in parts)), "")
    return found and f"{field.name}.{found}"


def _nullable(kind: pa.DataType) -> pa.DataType:
    return _of_parts(kind, [_nullable(field.type) for field in _fields(kind)])


def _as_text(kind: pa.DataType) -> pa.DataType:
    if kinds.is_timestamp(kind):
        return pa.string()
    return _of_parts(kind, [_as_text(field.type) for field in _fields(kind)])


def _converted(array: pa.Array, field: pa.Field, cut: bool) -> pa.Array:
    """Return an array as one of a field's type.

    What may not be null is not, also below a null: Parquet's writer asks for no more.
    """
    kind, is_null = field.type, array.is_null() if field.nullable else None
    fields = _fields(kind)
    parts = [_converted(part, each, cut) for part, each in zip(_parts(array), fields, strict=True)]
    if kinds.is_struct(kind) and fields:
        return pa.StructArray.from_arrays(parts, fields=fields, mask=is_null)
    if kinds.is_list(kind):
        ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array), 0))
        starts = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return pa.ListArray.from_arrays(starts, *parts, type=kind, mask=is_null)
    if array.type != kind:
        array = _times(array, kind, cut)
    if field.nullable or not array.null_count:
        return array
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _times(texts: pa.Array, kind: pa.TimestampType, cut: bool) -> pa.Array:
    """Return times that are UTC unless they say otherwise, as pyarrow.json has them."""
    texts = pc.replace_substring_regex(texts, f"^({_DAY})t", r"\1T")
    texts = pc.replace_substring_regex(texts, r"(\d)z$", r"\1Z")
    if cut:
        digits = _DIGITS[kind.unit]
        kept = rf"\.\d{{{digits}}})\d+" if digits else r")\.\d+"
        texts = pc.replace_substring_regex(texts, rf"^({_DAY}[T ]\d\d:\d\d:\d\d{kept}", r"\1")
    zoned, utc = pc.match_substring_regex(texts, _HAS_ZONE), pa.timestamp(kind.unit, "UTC")
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, texts, nothing).cast(utc)
    without = pc.if_else(zoned, nothing, texts).cast(pa.timestamp(kind.unit)).cast(utc)
    return pc.coalesce(with_zone, without).cast(kind)


def _fields(kind: pa.DataType) -> list[pa.Field]:
    """Return what a type consists of, as far as JSON can be converted to it."""
    if kinds.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    return [kind.value_field] if kinds.is_list(kind) else []


def _parts(array: pa.Array) -> list[pa.Array]:
    """Return the arrays of these; beneath a null, a list has no values and a struct nulls."""
    flat = array.flatten() if _fields(array.type) else []
    return flat if kinds.is_struct(array.type) else [flat] if kinds.is_list(array.type) else []


def _of_parts(kind: pa.DataType, types: list[pa.DataType]) -> pa.DataType:
    """Return a type made of other parts, all of them nullable."""
    fields = [
        field.with_type(each).with_nullable(True)
        for field, each in zip(_fields(kind), types, strict=True)
    ]
    if kinds.is_struct(kind):
        return pa.struct(fields)
    return pa.list_(*fields) if kinds.is_list(kind) else kind
