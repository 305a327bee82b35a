"""Where a program's checkpoint location comes from."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.waiting import eventually

pytestmark = pytest.mark.spark
SETTING = "spark.sql.streaming.checkpointLocation"


@pytest.fixture
def root(sc: SparkContext, tmp_path: Path) -> Iterator[Path]:
    """The setting's value in the session."""
    session = SparkSession.builder.getOrCreate()
    session.conf.set(SETTING, f"{tmp_path}/locations/")
    yield tmp_path / "locations"
    session.conf.unset(SETTING)


def ignore(rdd: object) -> None:
    """An output that can be pickled."""


def run(sc: SparkContext, directory: Path | None = None, query_name: str | None = None) -> None:
    """Run two batches of a program."""
    clock = ManualClock(1_000_000)
    ssc = StreamingContext(sc, 1, clock=clock, queryName=query_name)
    try:
        if directory is not None:
            ssc.checkpoint(str(directory))
        ssc.queueStream([[1]]).foreachRDD(ignore)
        stepper = Stepper(ssc, clock)
        ssc.start()
        stepper.step(2)
    finally:
        ssc.stop(stopSparkContext=False)


def batches(location: Path) -> list[str]:
    return sorted(path.name for path in (location / "commits").iterdir() if path.name.isdigit())


def test_it_is_the_query_s_under_the_setting(sc: SparkContext, root: Path) -> None:
    run(sc, query_name="words")
    run(sc, query_name="words")
    assert [path.name for path in root.iterdir()] == ["words"]
    assert batches(root / "words") == ["0", "1", "2", "3"]


def test_without_a_name_each_start_has_its_own(
    sc: SparkContext, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(sc)
    run(sc)
    assert len({uuid.UUID(path.name) for path in root.iterdir()}) == 2
    assert all(batches(path) == ["0", "1"] for path in root.iterdir())
    told = [r.getMessage() for r in caplog.records if "no queryName" in r.getMessage()]
    assert len(told) == 2
    assert all(str(path) in "".join(told) for path in root.iterdir())
    assert "does not continue this run" in told[0]


def test_what_the_program_says_goes_first(sc: SparkContext, root: Path, tmp_path: Path) -> None:
    run(sc, tmp_path / "own", "words")
    assert batches(tmp_path / "own") == ["0", "1"]
    assert not root.exists()


def test_without_any_it_is_temporary_and_its_path_is_logged(
    sc: SparkContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    caplog.set_level(logging.INFO, "penstock")
    run(sc, query_name="words")
    (told,) = [r.getMessage() for r in caplog.records if "No checkpoint location" in r.getMessage()]
    assert f"{tmp_path}/penstock-run-" in told
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_one_ends_with_its_session_and_with_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.streaming.temporary_program"],
        capture_output=True,
        text=True,
        check=False,
    )
    stopped, ends = done.stdout.splitlines()[-2:]
    assert stopped == "stopped False", done.stderr
    assert eventually(lambda: not Path(ends.removeprefix("ends ")).exists())


def test_a_setting_of_the_session_counts(sc: SparkContext) -> None:
    name = "spark.sql.streaming.minBatchesToRetain"
    session = SparkSession.builder.getOrCreate()
    session.conf.set(name, "7")
    try:
        assert StreamingContext(sc, 1).settings.min_batches_to_retain == 7
    finally:
        session.conf.unset(name)
    assert StreamingContext(sc, 1).settings.min_batches_to_retain == 100


@pytest.mark.parametrize("name", ["", "a/b", "..", 5])
def test_a_name_that_is_no_folder_is_refused(sc: SparkContext, name: str) -> None:
    with pytest.raises(ConfigError, match="query name"):
        StreamingContext(sc, 1, queryName=name)
