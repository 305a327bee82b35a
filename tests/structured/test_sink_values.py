"""Values that sinks cannot hold, as the table in docs/structured_sinks.md has them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError, SinkError
from penstock.model import OutputBatch
from penstock.structured.sinks import ParquetSink, PostgresSink, read_parquet
from penstock.structured.sinks.values import BadValueError, Fitting
from tests.structured.postgres import Server, needs_postgres

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "structured_sinks.md"
SETTING = "spark.penstock.sinks.badValues"
DAY_US = 86_400_000_000
_number = count()


class Value(NamedTuple):
    """A value, the type of its column in PostgreSQL, and a part of it as it is read."""

    sql: str
    kind: str
    part: str


VALUES: Mapping[str, Value] = {
    "U+0000 in text": Value("'a' || char(0) || 'b'", "text", "a\0b"),
    "U+0000 in a nested value": Value("array('a' || char(0))", "jsonb", "a\\u0000"),
    "text that is not UTF-8": Value("cast(X'61ff' as string)", "text", "61FF"),
    "a date before the year 1": Value("date'0000-06-01'", "date", "0000-06-01"),
    "a date after 9999": Value("date'10000-01-01'", "date", "10000-01-01"),
    "a date after 32767": Value("date'40000-01-01'", "date", "40000-01-01"),
    "a time after 9999": Value("timestamp'+10000-01-01 00:00:00'", "timestamp", "10000-01-01 00"),
    "NaN": Value("double('NaN')", "double precision", "nan"),
    "infinity": Value("double('Infinity')", "double precision", "inf"),
    "a decimal of 38 digits": Value(
        "cast('1234567890123456789012345678.0123456789' as decimal(38,10))",
        "numeric",
        "1234567890123456789012345678.0123456789",
    ),
}
NAMES = {"two columns of one name": ["a", "a"], "names that differ by case": ["a", "A"]}
ALL = [f"{value.sql} AS c{number}" for number, value in enumerate(VALUES.values())]


@dataclass(frozen=True)
class Place:
    """A sink over a table of a test's own."""

    name: str
    """In the page's table."""
    make: Callable[[Mapping[str, str]], Any]
    """Returns a sink for columns with these types."""
    read: Callable[[], list[list[Any]]]
    """Returns the rows."""


@pytest.fixture
def spark(sc: SparkContext) -> Iterator[SparkSession]:
    spark = SparkSession.builder.getOrCreate()
    yield spark
    spark.conf.unset(SETTING)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture(
    params=["parquet", pytest.param("postgres", marks=[needs_postgres, pytest.mark.slow])]
)
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Place:
    if request.param == "parquet":
        return Place("ParquetSink", lambda _: ParquetSink(tmp_path), lambda: _read(spark, tmp_path))
    return postgres_place(request.getfixturevalue("server"))


def _read(spark: SparkSession, folder: Path) -> list[list[Any]]:
    columns = [f"cast(c{n} as string)" for n in range(len(VALUES))]
    columns[1], columns[2] = "to_json(c1)", "hex(cast(c2 as binary))"
    return [list(row) for row in read_parquet(spark, folder).selectExpr(*columns).collect()]


def postgres_place(server: Server) -> Place:
    import psycopg

    table = f"odd{next(_number)}"

    def query(sql: str) -> list[list[Any]]:
        with psycopg.connect(server.url, autocommit=True) as db:
            found = db.execute(sql)  # type: ignore[arg-type,unused-ignore]
            return [list(row) for row in found] if found.description else []

    def make(types: Mapping[str, str]) -> PostgresSink:
        columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
        query(f"CREATE TABLE {table} ({columns})")
        return PostgresSink(server.url, table)

    texts = ", ".join(f"c{n}::text" for n in range(len(VALUES)))
    return Place("PostgresSink", make, lambda: query(f"SELECT {texts} FROM {table}"))


def stated(sink: str) -> dict[str, str]:
    """Return what the page's table has for a sink, by value."""
    (table,) = re.findall(r"(\| value \|.*?)\n\n", PAGE.read_text(), re.DOTALL)
    head, _, *rows = ([c.strip(" `") for c in r.strip("|").split("|")] for r in table.split("\n"))
    return {row[0]: row[head.index(sink)] for row in rows}


def batch(batch_id: int = 0) -> OutputBatch:
    return OutputBatch("q", "out", batch_id, plan="p")


def types() -> dict[str, str]:
    return {f"c{n}": value.kind for n, value in enumerate(VALUES.values())}


def outcome(value: Value, read: Any) -> str:
    if read is None:
        return "null"
    if "\ufffd" in str(read) or "\\ufffd" in str(read):
        return "U+FFFD"
    assert value.part.lower() in str(read).lower()
    return "kept"


def test_values_are_replaced_as_the_page_says(
    place: Place, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    spark.conf.set(SETTING, "replace")
    with caplog.at_level(logging.WARNING, "penstock"):
        place.make(types()).write(spark.sql(f"SELECT {', '.join(ALL)}"), batch())
    (row,) = place.read()
    found = {name: outcome(VALUES[name], read) for name, read in zip(VALUES, row, strict=True)}
    expected = {name: what for name, what in stated(place.name).items() if name in VALUES}
    assert found == expected
    replaced = sum(what != "kept" for what in expected.values())
    assert (f"{replaced} values that" in caplog.text) == bool(replaced)


def test_names_are_refused_as_the_page_says(place: Place, spark: SparkSession) -> None:
    sink = place.make({"a": "int", "A": "int"} if place.name == "PostgresSink" else {"a": "int"})
    for number, (what, names) in enumerate(NAMES.items()):
        df = spark.sql("SELECT 1, 2").toDF(*names)
        if stated(place.name)[what] == "kept":
            sink.write(df, batch(number))
        else:
            with pytest.raises(ConfigError, match="two columns of the DataFrame are the same"):
                sink.write(df, batch(number))


@needs_postgres
@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "kind", "why"),
    [
        ("'a' || char(0)", "text", "with U\\+0000"),
        ("date'40000-01-01'", "date", "outside of the years 1 to 32767"),
    ],
)
def test_a_value_that_is_not_replaced_fails_the_batch_by_name(
    server: Server, spark: SparkSession, sql: str, kind: str, why: str
) -> None:
    """What was acked at the door does not stop a sink for ever: a setting takes it."""
    place = postgres_place(server)
    sink = place.make({**types(), "id": "int", "v": kind})
    df = spark.sql(f"SELECT 7 AS id, {sql} AS v")
    for _ in range(2):
        with pytest.raises(
            SinkError, match=f"column 'v' holds .*{why}, in the row id=7.*{SETTING}"
        ):
            sink.write(df, batch())
    assert place.read() == []
    spark.conf.set(SETTING, "replace")
    sink.write(df, batch())
    assert len(place.read()) == 1


@needs_postgres
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sql", "why"),
    [
        ("varchar(2)", "'long'", r"too long for type character varying\(2\).*column v"),
        ("numeric(3,1)", "12345.6", "numeric field overflow.*column v"),
        ("smallint", "100000", "out of range for type smallint.*column v"),
        ("jsonb", "'{'", "invalid input syntax for type json.*column v"),
    ],
)
def test_what_a_column_cannot_hold_is_named_by_the_database(
    server: Server, spark: SparkSession, kind: str, sql: str, why: str
) -> None:
    sink = postgres_place(server).make({"v": kind})
    with pytest.raises(SinkError, match=why):
        sink.write(spark.sql(f"SELECT {sql} AS v"), batch())


@needs_postgres
@pytest.mark.slow
def test_a_setting_that_is_none_is_refused(spark: SparkSession, server: Server) -> None:
    sink = postgres_place(server).make({"v": "int"})
    spark.conf.set(SETTING, "drop")
    with pytest.raises(ConfigError, match="give one of fail, replace"):
        sink.write(_rows(spark), batch())


def _rows(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 1 AS v")


def test_an_escape_in_json_is_told_from_a_text() -> None:
    fitting = Fitting(["v"], [0], replaces=True)
    texts = [r'["\u0000\u0000"]', r'["\\u0000"]', r'["\\\u0000"]', None, ""]
    rows = fitting(pa.record_batch([pa.array(texts)], names=["0"]))
    assert rows.column(0).to_pylist() == [r'["\ufffd\ufffd"]', texts[1], r'["\\\ufffd"]', None, ""]
    assert fitting.replaced == 2


def test_each_value_at_the_bounds() -> None:
    fails = Fitting(["v"], [], replaces=False)
    first_day, end_day = -719_162, 11_248_738  # 0001-01-01, and the day after 32767-12-31
    days, stamp = pa.array([first_day, end_day - 1, None], pa.int32()), pa.timestamp("us", "UTC")
    times = pa.array([first_day * DAY_US, end_day * DAY_US - 1, None], pa.int64())
    for array in (days.cast(pa.date32()), times.cast(stamp), pa.array([float("inf"), None])):
        rows = pa.record_batch([array], names=["0"])
        assert fails(rows).equals(rows)
    for array in (
        pa.array([end_day], pa.int32()).cast(pa.date32()),
        pa.array([first_day - 1], pa.int32()).cast(pa.date32()),
        pa.array([end_day * DAY_US], pa.int64()).cast(stamp),
        pa.array(["a\0"]),
        pa.array([b"\xff"]).view(pa.string()),
    ):
        with pytest.raises(BadValueError, match="column 'v' holds"):
            fails(pa.record_batch([array], names=["0"]))
