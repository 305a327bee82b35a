"""Record schemas: what they take, what they refuse at the store, and how it comes back."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
import threading
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.journal import JournalStream, JournalWriter, RecordFormat
from penstock.journal.block import BlockFooter, encode_block, read_block
from tests.journal.helpers import PATIENT, memory_stream, read_all, write_blocks

UTC = dt.timezone.utc
NAIVE = dt.datetime(2024, 1, 1, tzinfo=UTC).replace(tzinfo=None)
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "null": (pa.null(), None),
    "bool": (pa.bool_(), True),
    "int8": (pa.int8(), -1),
    "uint64": (pa.uint64(), 2**63 + 1),
    "float64": (pa.float64(), 0.1),
    "decimal": (pa.decimal128(10, 2), decimal.Decimal("1.23")),
    "date": (pa.date32(), dt.date(2024, 2, 29)),
    "date64": (pa.date64(), dt.date(2024, 2, 29)),
    "timestamp_s": (pa.timestamp("s"), NAIVE),
    "timestamp_us": (pa.timestamp("us"), NAIVE.replace(microsecond=7)),
    "timestamp_zone": (pa.timestamp("us", "Europe/Paris"), dt.datetime(2024, 1, 1, tzinfo=UTC)),
    "duration_us": (pa.duration("us"), dt.timedelta(microseconds=90)),
    "string": (pa.string(), "é"),
    "large_string": (pa.large_string(), "é"),
    "string_view": (pa.string_view(), "long enough not to be inlined"),
    "binary": (pa.binary(), b"\xff\0"),
    "fixed_binary": (pa.binary(3), b"abc"),
    "list": (pa.list_(pa.int32()), [1, None]),
    "large_list": (pa.large_list(pa.string()), ["a"]),
    "fixed_list": (pa.list_(pa.int32(), 2), [1, 2]),
    "required_items": (pa.list_(pa.field("x", pa.int32(), nullable=False)), [1, 2]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": ["c"]}),
    "map": (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), "a"),
    "list_of_dictionary": (pa.list_(pa.dictionary(pa.int32(), pa.string())), ["a", "b"]),
}
if int(pa.__version__.partition(".")[0]) < 26:  # see the test below
    del TYPES["fixed_list"]
NOT_OF_SPARK: dict[str, tuple[pa.DataType, Any]] = {
    "float16": (pa.float16(), 1.5),
    "decimal256": (pa.decimal256(50, 2), decimal.Decimal("1.23")),
    "time_s": (pa.time32("s"), dt.time(1, 2, 3)),
    "time_us": (pa.time64("us"), dt.time(1, 2, 3, 4)),
    "duration_s": (pa.duration("s"), dt.timedelta(seconds=90)),
    "uuid": (pa.uuid(), uuid.UUID(int=7)),
    "timestamp_ns": (pa.timestamp("ns"), pd.Timestamp("2024-01-01T00:00:00.000000001")),
    "nested": (pa.list_(pa.struct([("at", pa.time64("us"))])), [{"at": dt.time(1)}]),
}
"""Types that Spark cannot read, or not in the same way by each path."""


def test_columns_may_be_text() -> None:
    columns = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms")), ("name", pa.string())])
    assert RecordFormat("id int64, at timestamp[ms], name string") == RecordFormat(columns)
    with pytest.raises(
        ConfigError, match=r"'id integer' is not a record schema.*'id int64 not null, at times"
    ):
        RecordFormat("id integer")


@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back_as_it_went_in(name: str) -> None:
    column, value = TYPES[name]
    stream = memory_stream(pa.schema([("c", column)]))
    stored = value.bytes if name == "uuid" else value
    records = [{"c": stored}, {"c": None}, {"c": stored}]
    with_appends = JournalWriter(stream, "r0", policy=PATIENT)
    with_appends.append_all(records)
    for record in records:
        with_appends.append(record)
    with_appends.close()
    expected = [{"c": value}, {"c": None}, {"c": value}] * 2
    assert read_all(JournalStream.open(stream.storage, "s")) == expected


@pytest.mark.parametrize("name", NOT_OF_SPARK)
def test_columns_that_spark_cannot_read_are_for_existing_streams_alone(name: str) -> None:
    column, _ = NOT_OF_SPARK[name]
    with pytest.raises(ConfigError, match=r"Spark cannot read column .* UTC\]"):
        RecordFormat(pa.schema([("c", column)]))


@pytest.mark.parametrize(
    "column",
    [
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.month_day_nano_interval(),
        pa.struct([]),
        pa.struct([("a", pa.int32()), ("a", pa.int32())]),
        pa.decimal128(2, 4),
    ],
    ids=str,
)
def test_types_that_parquet_cannot_hold_are_refused_at_once(column: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="cannot hold columns"):
        RecordFormat(pa.schema([("c", column)]))


def test_lists_of_fixed_size_need_a_pyarrow_that_reads_nulls_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nested = pa.schema([("c", pa.struct([("xy", pa.list_(pa.int32(), 2))]))])
    monkeypatch.setattr(pa, "__version__", "26.0.0")
    assert RecordFormat(nested).arrow == nested
    monkeypatch.setattr(pa, "__version__", "25.0.1")
    with pytest.raises(ConfigError, match="cannot hold columns") as caught:
        RecordFormat(nested)
    assert "pyarrow 26" in str(caught.value.__cause__)


@pytest.mark.parametrize("schema", ["text", "", None, 7, pa.schema([]), {"a": "int"}])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigError, match="not a record schema"):
        RecordFormat(schema)


def test_columns_need_names_of_their_own() -> None:
    with pytest.raises(ConfigError, match="cannot hold") as caught:
        RecordFormat(pa.schema([("a", pa.int32()), ("a", pa.string())]))
    assert "same name" in str(caught.value)


def test_schemas_that_differ_in_what_may_be_null_are_told_apart() -> None:
    stream = memory_stream("id int64")
    with pytest.raises(ConfigError, match=r"of arrow\(id int64\), not arrow\(id int64 not null\)"):
        JournalStream.create(stream.storage, "s", RecordFormat("id int64 not null"))


@pytest.mark.parametrize(
    "schema", ["string", "binary", "pickle", pa.schema([("a", pa.int64(), False)])]
)
def test_a_format_survives_json_and_pickle(schema: Any) -> None:
    record_format = RecordFormat(schema)
    copies = [
        RecordFormat.from_json(record_format.to_json()),
        pickle.loads(pickle.dumps(record_format)),
    ]
    for copy in copies:
        assert copy == record_format
        assert hash(copy) == hash(record_format)


def test_formats_differ_by_kind_and_columns() -> None:
    formats = [
        RecordFormat("string"),
        RecordFormat("binary"),
        RecordFormat("pickle"),
        RecordFormat(pa.schema([("value", pa.string())])),
        RecordFormat(pa.schema([("value", pa.large_string())])),
    ]
    assert all((a == b) == (a is b) for a in formats for b in formats)


def test_pickled_objects_of_any_kind() -> None:
    stream = memory_stream("pickle")
    records = [{"a": {1, 2}}, (1, "x"), None, NAIVE, [b"\0"]]
    write_blocks(stream, [records])
    assert read_all(stream) == records


def test_bytes_of_any_kind() -> None:
    stream = memory_stream("binary")
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    mutable = bytearray(b"abc")
    writer.append(mutable)
    mutable[:] = b"xyz"
    writer.append_all([b"", memoryview(b"m"), bytearray(b"\xff")])
    writer.close()
    assert read_all(stream) == [b"abc", b"", b"m", b"\xff"]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")


class Rude:
    def __repr__(self) -> str:
        raise ValueError("no repr either")


def broken_text() -> pa.RecordBatch:
    text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    return pa.record_batch([text], ["value"])


def broken_offsets() -> pa.RecordBatch:
    offsets = np.array([0, 9, 1], np.int32)  # in bounds at both ends
    text = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b"a"))
    return pa.record_batch([text], ["value"])


ROWS = pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
NESTED = pa.schema([("s", pa.struct([pa.field("a", pa.int32(), nullable=False)]))])
ITEMS = pa.schema([("l", pa.list_(pa.field("x", pa.int32(), nullable=False)))])
LABELS = pa.schema([pa.field("d", pa.dictionary(pa.int8(), pa.string()), nullable=False)])
SECONDS = pa.schema([("t", pa.timestamp("s"))])

MISFITS: dict[str, tuple[Any, Any]] = {
    "bytes as text": ("string", b"a"),
    "None as text": ("string", None),
    "a number as text": ("string", 7),
    "half a surrogate pair": ("string", "\ud800"),
    "text as bytes": ("binary", "a"),
    "None as bytes": ("binary", None),
    "a list as bytes": ("binary", [1, 2]),
    "an object that does not pickle": ("pickle", Unpicklable()),
    "a lock": ("pickle", threading.Lock()),
    "an object without a repr": ("string", Rude()),
    "a value as row": (ROWS, 7),
    "a list as row": (ROWS, [1, "b"]),
    "a missing required column": (ROWS, {"b": "x"}),
    "null in a required column": (ROWS, {"a": None, "b": "x"}),
    "an unknown column": (ROWS, {"a": 1, "typo": "x"}),
    "a wrong type": (ROWS, {"a": "one"}),
    "a number too large": (ROWS, {"a": 2**40}),
    "a fraction for a whole number": (ROWS, {"a": 1.5}),
    "surrogates in a column": (ROWS, {"a": 1, "b": "\udfff"}),
    "null in a required field of a struct": (NESTED, {"s": {"a": None}}),
    "null among required items": (ITEMS, {"l": [1, None]}),
    "null in a required dictionary": (LABELS, {"d": None}),
}
BAD_BATCHES: dict[str, tuple[Any, pa.RecordBatch | pa.Table]] = {
    "other columns": ("string", pa.table({"line": ["a"]})),
    "one column more": ("string", pa.table({"value": ["a"], "more": ["b"]})),
    "nulls": ("string", pa.table({"value": ["a", None]})),
    "text that is not UTF-8": ("string", broken_text()),
    "offsets out of bounds": ("string", broken_offsets()),
    "bytes that are not text": ("string", pa.table({"value": [b"\xff"]})),
    "a number that does not fit": (ROWS, pa.table({"a": [2**40], "b": ["x"]})),
    "the same column twice": (
        ROWS,
        pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]),
    ),
    "nulls within a dictionary": (
        LABELS,
        pa.record_batch(
            [pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([None], "string"))],
            ["d"],
        ),
    ),
    "a time beyond what Parquet has": (
        SECONDS,
        pa.table({"t": pa.array([2**62]).cast(pa.timestamp("s"))}),
    ),
}


@pytest.mark.parametrize("case", MISFITS)
@pytest.mark.parametrize("call", ["append", "append_all"])
def test_a_misfit_fails_its_own_store_and_no_other(case: str, call: str) -> None:
    schema, record = MISFITS[case]
    good = {
        "string": "good",
        "binary": b"good",
        "pickle": "good",
        ROWS: {"a": 1, "b": None},
        NESTED: {"s": {"a": 1}},
        ITEMS: {"l": [1]},
        LABELS: {"d": "x"},
    }[schema]
    stream = memory_stream(schema)
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append(good)
    with pytest.raises(ConfigError, match="does not match schema"):
        writer.append(record) if call == "append" else writer.append_all([good, record])
    writer.append(good)
    writer.close()
    assert read_all(stream) == [good, good]


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_fails_its_own_store_and_no_other(case: str) -> None:
    schema, data = BAD_BATCHES[case]
    stream = memory_stream(schema)
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    with pytest.raises(ConfigError, match="does not match schema"):
        writer.append_all(data)
    writer.close()
    assert read_all(stream) == []


@pytest.mark.parametrize("position", [float("nan"), {1, 2}, b"x", object()])
def test_a_position_that_is_no_json_fails_its_own_store_and_no_other(position: Any) -> None:
    stream = memory_stream()
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append("a", position=1)
    with pytest.raises(ConfigError, match="not a JSON value"):
        writer.append("b", position=position)
    writer.close()
    assert read_all(stream) == ["a"]
    assert JournalWriter(stream, "r0").position == 1


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"b": ["x", None], "a": [1, 2]}),  # other order
        pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array(["x", None], "large_string")}),
        pa.table({"a": [1.0, 2.0], "b": pa.array(["x", None]).dictionary_encode()}),
        pa.record_batch({"a": pa.array([1, 2], pa.int32()), "b": pa.array([b"x", None])}),
        pa.concat_tables(
            [
                pa.table({"a": [1], "b": ["x"]}),
                pa.table({"a": [2], "b": pa.array([None], "string")}),
            ]
        ),
    ],
)
def test_batches_are_taken_by_name_and_cast_where_no_value_changes(data: Any) -> None:
    stream = memory_stream(ROWS)
    write_blocks(stream, [data])
    assert read_all(stream) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_a_slice_of_a_batch_stores_the_slice() -> None:
    stream = memory_stream()
    batch = pa.record_batch({"value": [str(i) for i in range(100)]})
    write_blocks(stream, [batch.slice(10, 5)])
    assert read_all(stream) == [str(i) for i in range(10, 15)]


COLUMNS = st.sampled_from(
    [
        pa.int8(),
        pa.string(),
        pa.timestamp("s"),
        pa.list_(pa.int8()),
        pa.list_(pa.field("x", pa.int8(), nullable=False)),
        pa.struct([pa.field("a", pa.int8(), nullable=False)]),
        pa.dictionary(pa.int8(), pa.string()),
    ]
)
VALUES = st.recursive(
    st.none() | st.integers(-200, 200) | st.text(max_size=2) | st.integers(2**61, 2**63 - 1),
    lambda inner: st.lists(inner, max_size=2) | st.fixed_dictionaries({"a": inner}),
    max_leaves=3,
)


@given(column=COLUMNS, nullable=st.booleans(), values=st.lists(VALUES, max_size=3))
@settings(max_examples=300)
def test_whatever_is_let_in_can_be_written_and_read(
    column: pa.DataType, nullable: bool, values: list[Any]
) -> None:
    record_format = RecordFormat(pa.schema([pa.field("c", column, nullable)]))
    try:
        batch = record_format.encode_many([{"c": value} for value in values])
    except ConfigError:
        return
    data = encode_block(record_format.encode([batch]), BlockFooter(0, len(values)))
    _, parquet = read_block(data.to_pybytes(), "p")
    assert parquet.read().cast(record_format.arrow).to_pylist() == batch.to_pylist()
