"""What a session notes of a query's runs, told of them in any order."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.checkpoint.query_runs import read_query_runs
from penstock.root_cause import raised_by_worker
from penstock.status import health, read_location
from penstock.storage import open_storage
from penstock.structured import registration, runs
from penstock.structured.running_query import RunningQuery, running_query


def _event(run: str, error: str | None = None) -> Any:
    return SimpleNamespace(id="query", runId=run, exception=error, name="totals")


def _listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: Any) -> runs.RunListener:
    monkeypatch.setattr(runs, "running_query", lambda *_: query)
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    session = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None))
    return runs.RunListener(cast("Any", session))


class Execution:
    """Of a query that failed, as py4j shows Spark's."""

    def exception(self) -> Execution:
        return self

    def isDefined(self) -> bool:
        return True

    def get(self) -> str:
        return _Text("no such topic\n\tat a place")


class _Text(str):
    def toString(self) -> str:
        return str(self)


def test_a_failure_that_ends_the_process_before_spark_tells_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = RunningQuery(str(tmp_path), 2000, (), Execution())
    listener = _listener(tmp_path, monkeypatch, query)
    listener.onQueryStarted(_event("first"))
    listener.close()
    assert read_query_runs(open_storage(tmp_path)).failed == (None, "no such topic")
    status = read_location(str(tmp_path))
    assert (status.name, status.failure) == ("totals", "no such topic")
    found = health(status)
    assert found.level == "error"
    assert "it failed: no such topic" in [reason.text for reason in found.reasons]


def test_an_end_that_is_told_late_is_not_the_next_run_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark tells of ends in a thread of its own: the query may run again already."""
    query = RunningQuery(str(tmp_path), 2000, ())
    listener = _listener(tmp_path, monkeypatch, query)
    metadata = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    (tmp_path / "offsets" / "0").write_text(f"v1\n{metadata}\n7")
    storage = open_storage(tmp_path)
    listener.onQueryStarted(_event("first"))
    listener.onQueryStarted(_event("second"))
    listener.onQueryTerminated(_event("first", "the disk is full"))
    assert read_query_runs(storage).failed is None
    listener.onQueryTerminated(_event("second", "the disk is full\n\tat a place"))
    assert read_query_runs(storage).failed == (0, "the disk is full")


def test_a_query_that_was_stopped_notes_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = _listener(tmp_path, monkeypatch, RunningQuery(str(tmp_path), 2000, ()))
    for run in ("first", "second"):
        listener.onQueryStarted(_event(run))
        assert read_location(str(tmp_path)).is_running is None  # nothing tells that it runs
        listener.onQueryTerminated(_event(run))
        assert read_location(str(tmp_path)).is_running is False


@pytest.mark.spark
def test_spark_says_why_a_query_ended(spark: SparkSession, tmp_path: Path) -> None:
    def refuse(df: DataFrame, batch_id: int) -> None:
        raise ValueError("no such column")

    rows = spark.readStream.format("rate").load()
    writer = rows.writeStream.foreachBatch(refuse).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="1 hour").start()
    found = running_query(spark, str(query.id))
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    assert found is not None
    assert raised_by_worker(found.failure() or "").startswith("ValueError: no such column")


class Slow(StreamingQueryListener):
    """Is told of an end later than the program is."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def onQueryStarted(self, event: object) -> None:
        self.heard.append("started")

    def onQueryProgress(self, event: object) -> None:
        time.sleep(0.5)
        self.heard.append("progress")

    def onQueryTerminated(self, event: object) -> None:
        self.heard.append("ended")


@pytest.mark.spark
def test_a_process_that_ends_hears_what_spark_has_still_to_tell(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Else Spark logs an error for each event: no Python answers its listener."""

    def run(name: str) -> None:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = rows.writeStream.format("noop").trigger(once=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()

    listener = Slow()
    spark.streams.addListener(listener)
    run("first")
    registration._leave(spark, [listener])
    assert listener.heard == ["started", "progress", "ended"]
    run("second")
    assert listener.heard == ["started", "progress", "ended"]
