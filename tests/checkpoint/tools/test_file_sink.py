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
    validate,
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
    """Copies a column of files, one a batch, to files; in a folder of its own.

    With state it leaves out what it has seen.
    """

    def __init__(
        self, session: SparkSession, folder: Path, interval: int, *, has_state: bool = False
    ) -> None:
        self._session, self._interval, self._has_state = session, interval, has_state
        self.inputs, self.location = folder / "in", folder / "location"
        self.output = folder / "out"
        write_inputs(self.inputs, count=FIRST)

    def run(self) -> None:
        """Run until all that is there is read."""
        reader = self._session.readStream.schema("key string, time string")
        rows = reader.option("maxFilesPerTrigger", 1).json(str(self.inputs)).select("time")
        if self._has_state:
            rows = rows.dropDuplicates()
        writer = rows.writeStream.format("json").option("checkpointLocation", str(self.location))
        with settings(
            self._session,
            {"spark.sql.streaming.fileSink.log.compactInterval": str(self._interval)},
        ):
            query = writer.option("path", str(self.output)).trigger(availableNow=True).start()
            query.awaitTermination()

    def add_inputs(self, count: int = MORE, *, repeat: int = 0) -> None:
        """Write files, each with a new minute, and one of so many minutes before."""
        for number in range(FIRST, FIRST + count):
            minutes = [number, number - repeat] if repeat else [number]
            lines = [{"key": "a", "time": f"2026-01-01T00:{each:02d}:00Z"} for each in minutes]
            path = self.inputs / f"{number}.json"
            path.write_text("\n".join(map(json.dumps, lines)))
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


@pytest.mark.parametrize("has_state", [False, True])
def test_a_second_query_begins_in_a_folder_of_its_own(
    session: SparkSession, tmp_path: Path, *, has_state: bool
) -> None:
    """It writes what the first one writes from then on; both logs are compacted at each 10th."""
    query = Query(session, tmp_path, 10, has_state=has_state)
    query.run()
    copy = tmp_path / "fork", tmp_path / "new"
    apply_fork(plan_fork(query.location, copy[0], sink=copy[1]))
    query.add_inputs(11, repeat=FIRST)
    query.run()
    whole = query.written()
    query.location, query.output = copy
    query.run()

    assert query.written() == whole - Counter(range(FIRST))
    assert set(query.written()) == set(range(0 if not has_state else FIRST, FIRST + 11))
    assert {path.name for path in copy[1].glob("_spark_metadata/*.compact")} == {
        "9.compact",
        "19.compact",
    }
    assert [f for f in validate(copy[0], sink=copy[1]).findings if f.severity != "note"] == []
