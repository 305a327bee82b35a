"""The storage of a checkpoint location: what it logs, and a class of the program's own."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.errors import ConfigError
from penstock.receivers import Receiver
from penstock.storage import Storage, open_storage
from penstock.storage.local import LocalStorage
from penstock.streaming import StreamingContext
from penstock.streaming.recovery.location_storage import open_location
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.storage.sqlite_files import SqliteFiles
from tests.streaming.settings import spark_settings
from tests.waiting import eventually

SETTING = "spark.penstock.checkpointFileManagerClass"
LOGGER = "penstock.CheckpointFileManager"


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def test_what_is_written_is_logged_as_in_spark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    location = CheckpointLocation(open_location(str(tmp_path)))
    with location:
        pass
    writing, renamed = messages(caplog)
    target = re.escape(f"file://{tmp_path}/metadata")
    temporary = re.escape(f"file://{tmp_path}/.metadata.") + r"[0-9a-f]{16}\.tmp"
    assert re.fullmatch(f"Writing atomically to {target} using temp file {temporary}", writing)
    assert re.fullmatch(f"Renamed temp file {temporary} to {target}", renamed)
    assert writing.partition("temp file ")[2] == renamed.split()[3]


def test_an_upload_is_logged_without_a_temporary_file(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    open_location("memory://logged/location").create("offsets/0", b"v1")
    assert messages(caplog) == [
        "Writing atomically to memory://logged/location/offsets/0 in one upload"
    ]


def test_the_journal_is_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    open_location(str(tmp_path)).open_folder("journal").create("clicks/block", b"x")
    open_storage(tmp_path).create("file", b"x")
    assert messages(caplog) == []


class Once(Receiver):
    """Stores two words, once."""

    def onStart(self) -> None:
        self.store(["a", "b"])

    def onStop(self) -> None:
        pass


@pytest.fixture
def file_manager(sc: SparkContext) -> Iterator[None]:
    with spark_settings(sc, {SETTING: "tests.storage.sqlite_files.SqliteFiles"}):
        yield


@pytest.mark.spark
@pytest.mark.usefixtures("file_manager")
@pytest.mark.parametrize("recover", ["graph", "program"])
def test_a_program_runs_on_a_file_manager_of_its_own(
    sc: SparkContext, tmp_path: Path, recover: str
) -> None:
    """Driver and executors: offsets, journal and the graph checkpoint are in a database."""
    clock = ManualClock(1_000_000)
    url = f"sqlite://{tmp_path}/files.db/words"
    sink = tmp_path / "sink"

    def write(rdd: object) -> None:
        with open(sink, "a") as file:
            file.writelines(f"{word}\n" for word in rdd.collect())  # type: ignore[attr-defined]

    def create() -> StreamingContext:
        ssc = StreamingContext(sc, 1, clock=clock)
        ssc.receiverStream(Once(), name="words").foreachRDD(write)
        return ssc

    for run in (1, 2):
        ssc = StreamingContext.getOrCreate(url, create, recover=recover)  # type: ignore[arg-type]
        ssc._clock = clock
        stepper = Stepper(ssc, clock)
        ssc.start()
        assert eventually(
            lambda: bool(stepper.step()) and len(sink.read_text().splitlines()) >= 2 * run  # noqa: B023
        )
        ssc.stop(stopSparkContext=False)

    assert sorted(sink.read_text().splitlines()) == ["a", "a", "b", "b"]
    assert {path.name for path in tmp_path.iterdir()} == {"files.db", "sink"}
    folders = {entry.name for entry in SqliteFiles(url).list()}
    assert {"commits", "journal", "metadata", "offsets", "sources"} <= folders
    assert any(name.startswith("checkpoint-") for name in folders) is (recover == "graph")


class NotWhole(LocalStorage, Storage):
    """A class that cannot be made with a URL alone."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("nodots", "nodots.*an import path such as"),
        ("no.such.Module", r"cannot be imported \(ModuleNotFoundError: No module named 'no'\)"),
        ("tests.waiting.Missing", "cannot be imported .*has no attribute 'Missing'"),
        ("tests.waiting.WAIT_S", "is not a subclass of penstock.storage.CheckpointFileManager"),
        ("penstock.storage.Storage", "does not define create, delete, exists, list, read, uri"),
    ],
)
def test_a_class_that_is_none_is_refused_at_once(sc: SparkContext, value: str, why: str) -> None:
    with (
        spark_settings(sc, {SETTING: value}),
        pytest.raises(ConfigError, match=f"setting {SETTING} is .*{why}") as caught,
    ):
        StreamingContext(sc, 1)
    assert "import path" in str(caught.value)


@pytest.mark.spark
def test_a_class_that_cannot_open_the_location_is_refused_there(
    sc: SparkContext, tmp_path: Path
) -> None:
    with spark_settings(sc, {SETTING: f"{__name__}.NotWhole"}):
        ssc = StreamingContext(sc, 1)
        with pytest.raises(ConfigError, match=f"cannot open {tmp_path} .*TypeError.*'key'"):
            ssc.checkpoint(str(tmp_path))
