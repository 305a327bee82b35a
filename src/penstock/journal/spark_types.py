"""The Arrow types that Spark reads equally through the Parquet scan and Arrow batches.

Spark has more types, but for these the two paths differ: a scan silently reads ``duration[s]`` as
microseconds, and fails on ``timestamp[ns]`` and on times of day. Needs no Spark.

Each schema of a source passes here before anything is stored (RecordFormat): what is acked can be
read by a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.types as kinds

from penstock.errors import ConfigError

_TIMESTAMP_UNITS = ("s", "ms", "us")
_LISTS = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
_TEXTS = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
_BYTES = (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary)
_SAME = (
    kinds.is_boolean,
    kinds.is_signed_integer,
    kinds.is_float32,
    kinds.is_float64,
    kinds.is_date32,
    kinds.is_null,
)
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
}
"""Spark's types have a sign, and a ``date64`` is whole days, as which Parquet has it."""


def spark_schema(schema: pa.Schema, **ids: str) -> pa.Schema:
    """Return the schema to which batches of ``schema`` are cast for Spark; all of it nullable.

    Raises:
        ConfigError: Spark cannot read a column; the error names it, and has these ids.
    """
    try:
        return pa.schema([_field(field) for field in schema])
    except ConfigError as e:
        e.ids.update(ids)
        raise


def _field(field: pa.Field) -> pa.Field:
    kind = _spark_type(field.type)
    if kind is None:
        raise ConfigError(
            f"Spark cannot read column {field.name!r} of type {field.type}",
            operation="check schema",
            hint="store it as a type that Spark has: timestamps and durations in microseconds, as "
            "in 'at timestamp[us, UTC]'; times of day as text or numbers",
        )
    return pa.field(field.name, kind)


def _spark_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the Arrow type in which Spark accepts values of a type, None if it cannot."""
    if kinds.is_dictionary(kind):
        return _spark_type(kind.value_type)
    return kind if _is(kind, _SAME) else _WIDER.get(kind) or _scalar(kind) or _nested(kind)


def _scalar(kind: pa.DataType) -> pa.DataType | None:
    if _is(kind, _TEXTS):
        return pa.string()
    if _is(kind, _BYTES):
        return pa.binary()
    if kinds.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if kinds.is_timestamp(kind) and kind.unit in _TIMESTAMP_UNITS and _is_zone(kind.tz):
        return pa.timestamp("us", kind.tz and "UTC")
    if kinds.is_duration(kind) and kind.unit == "us":
        return kind
    return None


def _is_zone(name: str | None) -> bool:
    """Whether Python has the time zone, without which it makes no object of an instant."""
    try:
        return name is None or pa.lib.string_to_tzinfo(name) is not None  # as_py() imports pandas
    except Exception:  # of Arrow, or of the time zone's library
        return False


def _nested(kind: pa.DataType) -> pa.DataType | None:
    if _is(kind, _LISTS):
        return pa.list_(_field(kind.value_field))
    if kinds.is_map(kind):
        return pa.map_(_field(kind.key_field).with_nullable(False), _field(kind.item_field))
    if kinds.is_struct(kind):
        return pa.struct([_field(kind.field(i)) for i in range(kind.num_fields)])
    return None


def _is(kind: pa.DataType, tests: Iterable[Callable[[pa.DataType], bool]]) -> bool:
    return any(test(kind) for test in tests)
