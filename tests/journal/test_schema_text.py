"""Schemas as text and as files of Spark, Avro and Arrow: types, instants, and what may be null."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from penstock.errors import ConfigError
from penstock.journal import RecordFormat
from penstock.journal.schema_text import parse_schema

INSTANT = pa.timestamp("us", "UTC")
WALL = pa.timestamp("us")


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("at timestamp[us, UTC]", pa.field("at", INSTANT)),
        ("at timestamp[us,tz=UTC]", pa.field("at", INSTANT)),
        ("at timestamp[ms, Europe/Berlin]", pa.field("at", pa.timestamp("ms", "Europe/Berlin"))),
        ("at timestamp[us]", pa.field("at", WALL)),
        ("id int64 not null", required("id", pa.int64())),
        ("id  int64  NOT NULL ", required("id", pa.int64())),
        ("price decimal128(10, 2) not null", required("price", pa.decimal128(10, 2))),
    ],
)
def test_text_tells_instants_decimals_and_what_may_be_null(text: str, field: pa.Field) -> None:
    assert parse_schema(text) == pa.schema([field])
    assert parse_schema(f"before string, {text}, after double") == pa.schema(
        [("before", pa.string()), field, ("after", pa.float64())]
    )


@pytest.mark.parametrize(
    "text",
    ["id", "id int64,", "at timestamp[us", "at timestamp[us, ]", "at timestamp[us, UTC] x",
     "price decimal128(99, 2)", "id integer"],
)  # fmt: skip
def test_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not a record schema.*at timestamp\[us, UTC\]"):
        parse_schema(text)


def write(tmp_path: Path, name: str, content: Any) -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)


def test_a_file_of_spark(tmp_path: Path) -> None:
    point = spark.StructType([spark.StructField("x", spark.ByteType(), False)])
    columns: list[tuple[str, Any, bool, pa.DataType]] = [
        ("id", spark.LongType(), False, pa.int64()),
        ("at", spark.TimestampType(), True, INSTANT),
        ("wall", spark.TimestampNTZType(), True, WALL),
        ("day", spark.DateType(), True, pa.date32()),
        ("price", spark.DecimalType(10, 2), False, pa.decimal128(10, 2)),
        ("text", spark.StringType(), True, pa.string()),
        ("bytes", spark.BinaryType(), True, pa.binary()),
        ("yes", spark.BooleanType(), True, pa.bool_()),
        ("i", spark.IntegerType(), True, pa.int32()),
        ("s", spark.ShortType(), True, pa.int16()),
        ("f", spark.FloatType(), True, pa.float32()),
        ("d", spark.DoubleType(), True, pa.float64()),
        ("points", spark.ArrayType(point, False), True,
         pa.list_(required("item", pa.struct([required("x", pa.int8())])))),
        ("by", spark.MapType(spark.StringType(), spark.ShortType(), False), True,
         pa.map_(pa.string(), required("value", pa.int16()))),
    ]  # fmt: skip
    struct = spark.StructType([spark.StructField(n, kind, null) for n, kind, null, _ in columns])
    path = write(tmp_path, "orders.json", struct.json().encode())
    assert parse_schema(path) == pa.schema(
        [pa.field(n, kind, null) for n, _, null, kind in columns]
    )
    assert RecordFormat(path) == RecordFormat(parse_schema(path))


def test_a_file_of_avro(tmp_path: Path) -> None:
    fields: list[tuple[str, Any, pa.Field]] = [
        ("id", "long", required("id", pa.int64())),
        ("name", ["null", "string"], pa.field("name", pa.string())),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}, required("at", INSTANT)),
        ("wall", ["null", {"type": "long", "logicalType": "local-timestamp-micros"}],
         pa.field("wall", WALL)),
        ("ms", {"type": "long", "logicalType": "timestamp-millis"},
         required("ms", pa.timestamp("ms", "UTC"))),
        ("day", {"type": "int", "logicalType": "date"}, required("day", pa.date32())),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
         required("price", pa.decimal128(9, 2))),
        ("uuid", {"type": "string", "logicalType": "uuid"}, required("uuid", pa.string())),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["a"]}, required("kind", pa.string())),
        ("other", ["null", "Kind"], pa.field("other", pa.string())),
        ("hash", {"type": "fixed", "name": "x.Hash", "size": 4}, required("hash", pa.binary(4))),
        ("hashes", {"type": "array", "items": ["null", "x.Hash"]},
         required("hashes", pa.list_(pa.binary(4)))),
        ("point", {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]},
         required("point", pa.struct([required("x", pa.float64())]))),
        ("counts", {"type": "map", "values": "int"},
         required("counts", pa.map_(pa.string(), required("value", pa.int32())))),
    ]  # fmt: skip
    record = {
        "type": "record",
        "name": "Click",
        "namespace": "shop",
        "fields": [{"name": name, "type": kind} for name, kind, _ in fields],
    }
    path = write(tmp_path, "click.avsc", record)
    assert parse_schema(path) == pa.schema([field for *_, field in fields])


def test_a_file_of_arrow(tmp_path: Path) -> None:
    schema = pa.schema([required("id", pa.int64()), ("at", INSTANT)])
    assert parse_schema(write(tmp_path, "s.arrow", schema.serialize().to_pybytes())) == schema
    with pa.ipc.new_file(str(tmp_path / "f.arrow"), schema):
        pass
    with pa.ipc.new_stream(str(tmp_path / "g.arrow"), schema):
        pass
    assert parse_schema(str(tmp_path / "f.arrow")) == schema
    assert parse_schema(str(tmp_path / "g.arrow")) == schema


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("s.json", b"{"), ("s.json", [1]), ("s.json", "long"),
        ("s.json", {"type": "struct", "fields": [{"name": "a", "type": "interval"}]}),
        ("s.avsc", {"type": "string"}), ("s.avsc", "Click"),
        ("s.avsc", {"type": "record", "name": "R",
                    "fields": [{"name": "a", "type": ["int", "string"]}]}),
        ("s.avsc", {"type": "record", "name": "R", "fields": [{"name": "next", "type": "R"}]}),
        ("s.arrow", b"no Arrow"), ("s.arrow", b""),
    ],
)  # fmt: skip
def test_a_file_that_is_no_schema_is_refused_by_name(
    tmp_path: Path, name: str, content: Any
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(ConfigError, match="not a record schema") as caught:
        parse_schema(path)
    assert caught.value.path == path
    with pytest.raises(ConfigError, match="No such file"):
        parse_schema(f"{tmp_path}/other/{name}")
