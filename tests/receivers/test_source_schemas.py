"""Columns that no program can read are refused by every source, before anything is acked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock import receivers
from penstock.cli.ingest import process
from penstock.cli.main import app
from penstock.errors import ConfigError
from penstock.journal import RecordFormat
from penstock.receivers import HttpReceiver, Receiver
from penstock.streaming import StreamingContext
from penstock.structured import start_receivers
from penstock.testing import ManualClock

UNREADABLE = [
    "at timestamp[ns]",
    "n int64, at time64[us]",
    "took duration[s]",
    "x halffloat",
    pa.schema([("rows", pa.list_(pa.struct([("at", pa.timestamp("ns", "UTC"))])))]),
    pa.schema([("by_name", pa.map_(pa.string(), pa.time32("s")))]),
    pa.schema([("at", pa.timestamp("us", "Mars/Base"))]),
    pa.schema([("price", pa.decimal256(50, 2))]),
]


class Sensor(Receiver):
    """A custom receiver of any schema."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def onStart(self) -> None:
        raise AssertionError("it was started")

    def onStop(self) -> None:
        pass


@pytest.mark.parametrize("schema", UNREADABLE, ids=str)
def test_columns_that_spark_cannot_read_are_refused_where_they_are_given(
    schema: Any,
) -> None:
    with pytest.raises(ConfigError, match="Spark cannot read"):
        RecordFormat(schema)
    with pytest.raises(ConfigError, match="Spark cannot read"):
        HttpReceiver(schema=schema)


@pytest.mark.spark
def test_programs_refuse_them_for_receivers_of_their_own(sc: SparkContext, tmp_path: Path) -> None:
    ssc = StreamingContext(sc, 1, clock=ManualClock())
    try:
        with pytest.raises(ConfigError, match="Spark cannot read"):
            ssc.receiverStream(Sensor("at timestamp[ns]"))
        with pytest.raises(ConfigError, match="Spark cannot read"):
            ssc.httpStream(0, schema="at timestamp[ns]")
    finally:
        ssc.stop(stopSparkContext=False)
    spark = SparkSession(sc)
    with pytest.raises(ConfigError, match="Spark cannot read"):
        start_receivers(spark, Sensor("at timestamp[ns]"), tmp_path / "journal", "clicks")


@pytest.mark.parametrize("schema", [each for each in UNREADABLE if isinstance(each, str)])
@pytest.mark.parametrize(
    "source", [["http", "--schema"], ["custom", f"{__name__}:Sensor", "--arg"]], ids=str
)
def test_ingest_stores_nothing_of_them(
    source: list[str], schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "claim_run", None)  # what gets there fails, and does not run on
    given = schema if source[0] == "http" else f"schema={schema}"
    to = ["--journal", str(tmp_path / "journal"), "--stream", "s"]
    result = CliRunner().invoke(app, ["ingest", *source, given, *to])
    assert result.exit_code == 2
    assert "Spark cannot read" in " ".join(result.output.split())
    assert not (tmp_path / "journal" / "s").exists()


def schemas_of_sources() -> Iterator[tuple[str, Any]]:
    for name in receivers.__all__:
        kind = getattr(receivers, name)
        if isinstance(kind, type) and issubclass(kind, Receiver):
            yield name, kind.schema


@pytest.mark.parametrize(("name", "schema"), list(schemas_of_sources()))
def test_what_every_built_in_source_stores_can_be_read(name: str, schema: Any) -> None:
    assert RecordFormat(schema) is not None
