"""Queries of Spark that write with Spark's own file sink: after a change, as if never stopped."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.tools import (
    apply_fork,
    apply_plan,
    inspect,
    plan_fork,
    plan_promote,
    plan_repair,
    plan_rewind,
    plan_undo,
)

from .conftest import settings, write_inputs

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FIRST, MORE = 4, 3
"""So many files, each its own batch: before the change, and after it."""


@pytest.fixture
def session(sc: SparkContext) -> SparkSession:
    from pyspark.sql import SparkSession

    return SparkSession(sc)


class Query:
    """Copies a column of files, one a batch, to files; in a folder of its own."""

    def __init__(self, session: SparkSession, folder: Path, interval: int) -> None:
        self._session, self._interval = session, interval
        self.inputs, self.location = folder / "in", folder / "location"
        self.output = folder / "out"
        write_inputs(self.inputs, count=FIRST)

    def run(self) -> None:
        """Run until all that is there is read."""
        reader = self._session.readStream.schema("key string, time string")
        rows = reader.option("maxFilesPerTrigger", 1).json(str(self.inputs)).select("time")
        writer = rows.writeStream.format("json").option("checkpointLocation", str(self.location))
        with settings(
            self._session,
            {"spark.sql.streaming.fileSink.log.compactInterval": str(self._interval)},
        ):
            query = writer.option("path", str(self.output)).trigger(availableNow=True).start()
            query.awaitTermination()

    def add_inputs(self) -> None:
        for number in range(FIRST, FIRST + MORE):
            path = self.inputs / f"{number}.json"
            path.write_text(json.dumps({"key": "a", "time": f"2026-01-01T00:{number:02d}:00Z"}))
            os.utime(path, (1_700_000_000 + number,) * 2)

    def written(self) -> Counter[int]:
        """Return the minutes in the output, as Spark reads it."""
        rows = self._session.read.schema("time string").json(str(self.output)).collect()
        return Counter(int(row.time[14:16]) for row in rows)


ALL = Counter(range(FIRST + MORE))


@pytest.mark.parametrize("interval", [3, 10])
def test_the_output_is_that_of_a_run_that_never_stopped(
    session: SparkSession, tmp_path: Path, interval: int
) -> None:
    """Taken back twice, with one, several and no compacted entries in the sink's log."""
    query = Query(session, tmp_path, interval)
    query.run()
    assert query.written() == Counter(range(FIRST))

    undo = apply_plan(plan_rewind(query.location, to_batch=0, sink=query.output), stopped=True)
    assert query.written() == Counter([0])
    apply_plan(plan_undo(undo), stopped=True)
    assert query.written() == Counter(range(FIRST))

    apply_plan(plan_rewind(query.location, to_batch=1, sink=query.output), stopped=True)
    assert query.written() == Counter([0, 1])
    query.add_inputs()
    query.run()
    assert query.written() == ALL

    newest = inspect(query.location).batches[-1].batch_id
    apply_plan(plan_promote(query.location, newest - 1, sink=query.output), stopped=True)
    query.run()
    assert query.written() == ALL


def test_a_torn_entry_of_a_committed_batch_is_repaired(
    session: SparkSession, tmp_path: Path
) -> None:
    query = Query(session, tmp_path, 10)
    query.run()
    (query.location / f"offsets/{FIRST - 1}").write_bytes(b"")

    apply_plan(plan_repair(query.location, sink=query.output), stopped=True)
    assert query.written() == Counter(range(FIRST - 1))
    query.add_inputs()
    query.run()

    assert query.written() == ALL


def test_a_second_query_begins_in_a_folder_of_its_own(
    session: SparkSession, tmp_path: Path
) -> None:
    query = Query(session, tmp_path, 3)
    query.run()
    copy = tmp_path / "fork", tmp_path / "new"
    apply_fork(plan_fork(query.location, copy[0], sink=copy[1]))
    query.location, query.output = copy
    query.add_inputs()
    query.run()

    assert query.written() == Counter(range(FIRST, FIRST + MORE))
