"""A record schema as a file: what other programs that know the records have written of them.

.json    as Spark writes it: ``df.schema.json()``
.avsc    of Avro: a record
.arrow   of Arrow: ``schema.serialize()``, or a file or stream with records

A column that may be null is one with ``nullable``, in Avro one whose union has ``null``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.journal.type_names import arrow_type

_INSTANT = pa.timestamp("us", "UTC")
_OF_SPARK = {
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": _INSTANT,
    "timestamp_ntz": pa.timestamp("us"),
}
_OF_AVRO = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": _INSTANT,
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def is_schema_file(text: str) -> bool:
    """Whether a text is the path of such a file: by how it ends."""
    return Path(text).suffix in _READERS


def read_schema_file(path: str) -> pa.Schema:
    """Return the columns that a file describes.

    Raises:
        ConfigError: it cannot be read, or describes no columns.
    """
    try:
        return pa.schema(list(_READERS[Path(path).suffix](Path(path).read_bytes())))
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as e:
        raise ConfigError(
            "the file is not a record schema",
            operation="read schema",
            path=path,
            hint="give Spark's df.schema.json() as .json, an Avro record as .avsc, or "
            "schema.serialize() of Arrow as .arrow",
        ) from e


def _spark_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if decimal := _DECIMAL.fullmatch(kind):
            return pa.decimal128(*map(int, decimal.groups()))
        return _OF_SPARK.get(kind) or arrow_type(kind)
    if kind["type"] == "struct":
        return pa.struct(
            [
                pa.field(each["name"], _spark_type(each["type"]), nullable=each["nullable"])
                for each in kind["fields"]
            ]
        )
    if kind["type"] == "array":
        items = pa.field("item", _spark_type(kind["elementType"]), kind["containsNull"])
        return pa.list_(items)
    if kind["type"] == "map":
        values = pa.field("value", _spark_type(kind["valueType"]), kind["valueContainsNull"])
        return pa.map_(_spark_type(kind["keyType"]), values)
    raise ValueError(f"{kind['type']!r} is not a type")


class _Avro:
    """The types of one Avro schema; a named one may be used again by its name."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}

    def type(self, kind: Any, space: str = "") -> pa.DataType:
        """Return the Arrow type; of a union, that of its other branch than ``null``."""
        if isinstance(kind, list):
            (kind,) = [each for each in kind if each != "null"] or ["null"]
            return self.type(kind, space)
        if isinstance(kind, str):
            return _OF_AVRO.get(kind) or self._named[_full(kind, space, self._named)]
        name = kind["type"]
        if kind.get("logicalType") == "decimal":
            return pa.decimal128(kind["precision"], kind.get("scale", 0))
        if name == "array":
            return pa.list_(self._field("item", kind["items"], space))
        if name == "map":
            return pa.map_(pa.string(), self._field("value", kind["values"], space))
        if name in ("record", "enum", "fixed"):
            return self._define(kind, name, space)
        logical = _LOGICAL.get(kind.get("logicalType"))
        return self.type(name, space) if logical is None else logical

    def _define(self, kind: dict[str, Any], name: str, space: str) -> pa.DataType:
        full = kind["name"]
        if "." not in full and (space := kind.get("namespace", space)):
            full = f"{space}.{full}"
        space = full.rpartition(".")[0]
        if name == "record":
            fields = [self._field(each["name"], each["type"], space) for each in kind["fields"]]
            found = pa.struct(fields)
        else:
            found = pa.string() if name == "enum" else pa.binary(kind["size"])
        self._named[full] = found
        return found

    def _field(self, name: str, kind: Any, space: str) -> pa.Field:
        can_be_null = kind == "null" or (isinstance(kind, list) and "null" in kind)
        return pa.field(name, self.type(kind, space), nullable=can_be_null)


def _full(name: str, space: str, named: dict[str, pa.DataType]) -> str:
    within = f"{space}.{name}"
    return within if within in named else name


def _of_arrow(data: bytes) -> pa.Schema:
    if data.startswith(b"ARROW1"):
        return pa.ipc.open_file(data).schema
    return pa.ipc.read_schema(pa.py_buffer(data))


_READERS: dict[str, Callable[[bytes], pa.Schema | pa.StructType]] = {
    ".json": lambda data: _spark_type(json.loads(data)),
    ".avsc": lambda data: _Avro().type(json.loads(data)),
    ".arrow": _of_arrow,
}
