"""Checkpoint locations as Spark and penstock leave them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

FILES = 5
"""So many files, each its own batch; with a log of the source compacted at every second one."""
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def settings(session: SparkSession, values: dict[str, str]) -> Iterator[None]:
    """Have a session with settings for as long as the block lasts."""
    for key, value in values.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            session.conf.unset(key)


def write_inputs(folder: Path, count: int = FILES) -> None:
    """Write files with a record each, a minute apart, of rising modification times."""
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number}.json"
        path.write_text(json.dumps({"key": "a", "time": f"2026-01-01T00:{number:02d}:00Z"}))
        os.utime(path, (1_700_000_000 + number,) * 2)


def file_rows(session: SparkSession, folder: Path) -> DataFrame:
    """Read such files, one a batch."""
    reader = session.readStream.schema("key string, time timestamp")
    rows = reader.option("maxFilesPerTrigger", 1).json(str(folder))
    return rows.withWatermark("time", "1 minute")


def run_to_the_end(rows: DataFrame, place: Path, mode: str = "append") -> None:
    """Run a query until it has read all that is there."""
    writer = rows.writeStream.format("noop").outputMode(mode)
    query = writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start()
    query.awaitTermination()


def count(session: SparkSession, inputs: Path, place: Path) -> None:
    """Run an aggregation with a watermark over a file source until it has read all that is there.

    The source's log is compacted at every second entry.
    """
    from pyspark.sql import functions

    with settings(session, {"spark.sql.streaming.fileSource.log.compactInterval": "2"}):
        rows = file_rows(session, inputs).groupBy(functions.window("time", "2 minutes")).count()
        run_to_the_end(rows, place, "update")


@pytest.fixture(scope="session")
def counted(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What such a query leaves, with its inputs beside it; tests copy it to change it.

    Batches 0 to 5 are committed, the last one without data, as the watermark had moved; sources/0
    holds 0, 1.compact, 2, 3.compact, 4.
    """
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("counted")
    write_inputs(folder / "in")
    count(SparkSession(sc), folder / "in", folder / "location")
    return folder / "location"


@pytest.fixture
def location(counted: Path, tmp_path: Path) -> Path:
    """A copy of it, with the times of its files."""
    return Path(shutil.copytree(counted, tmp_path / "location"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A location of penstock: batches 0 to 2 are planned, and 0 and 2 committed."""
    place = tmp_path / "own"
    with CheckpointLocation(place) as driver:
        for batch_id in range(3):
            end = {"clicks": {"r0-1": 10 * batch_id + 10, "r0-2": 5 * batch_id}}
            offsets = (json.dumps(end, separators=(",", ":")), None)
            driver.plan(batch_id, OffsetSeq(1_600_000_000_000 + 1000 * batch_id, sources=offsets))
        driver.commit(0)
        driver.commit(2)
    return place


def json_of(path: Path) -> Any:
    """Return the second line of a log file."""
    return json.loads(path.read_text().split("\n")[1])
