"""Outputs: their names, what sinks know batches by, and folders of text that are written once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.errors import (
    BatchFailedError,
    ConfigError,
    RecoveryMismatchError,
    SinkError,
    StreamingError,
    UnsharedPathError,
)
from penstock.streaming import OutputBatch, StreamingContext
from penstock.streaming.operations import text_files
from penstock.streaming.operations.outputs import ForEachRDD
from penstock.streaming.operations.text_files import BatchFolder, save_as_text_files
from penstock.testing import ManualClock
from tests.streaming.runs import Runs
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark

TIME = datetime.fromtimestamp(1001, timezone.utc)


def test_outputs_are_named_by_kind_and_number_or_as_the_program_says(ssc: StreamingContext) -> None:
    numbers, lines = ssc.queueStream([[1]]), ssc.tailStream("/var/log/app.log")
    numbers.foreachRDD(print)
    numbers.foreachRDD(print, name="copy")
    numbers.pprint()
    numbers.saveAsTextFiles("out", name="files")
    lines.foreachBatch(lambda df, batch_id: None)
    names = [output.name for output in ssc.graph.outputs]
    assert names == ["foreachRDD-0", "copy", "foreachRDD-1", "files", "foreachBatch-0"]


def test_a_name_belongs_to_one_output(ssc: StreamingContext) -> None:
    numbers = ssc.queueStream([[1]])
    numbers.foreachRDD(print, name="copy")
    with pytest.raises(StreamingError, match="two outputs are named 'copy'"):
        numbers.pprint(name="copy")
    with pytest.raises(ConfigError, match=r"output name '\.\./copy' is not allowed"):
        numbers.pprint(name="../copy")
    assert len(ssc.graph.outputs) == 1


def test_a_batch_that_runs_again_has_the_same_token(runs: Runs, tmp_path: Path) -> None:
    tokens: list[Any] = []

    def define(ssc: StreamingContext) -> None:
        lines = ssc.textFileStream(str(tmp_path), name="in")
        lines.foreachRDD(lambda time, rdd, output: tokens.append(output), name="copy")
        lines.foreachBatch(lambda df, batch_id, output: tokens.append((batch_id, output)))

    def run(batches: int) -> None:
        with runs.running_program(define) as stepper:
            stepper.step(batches)

    def expected(batch_id: int) -> list[Any]:
        location_id = CheckpointLocation(runs.location).read_id()
        plain = OutputBatch(location_id, "copy", batch_id)
        return [plain, (batch_id, OutputBatch(location_id, "foreachBatch-0", batch_id))]

    run(2)
    assert tokens == [*expected(0), *expected(1)]
    (runs.location / "commits/1").unlink()
    tokens.clear()
    run(1)
    assert tokens[:2] == expected(1)


def test_an_exactly_once_output_that_is_renamed_is_refused(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForEachRDD, "exactly_once", True)

    def run(name: str) -> None:
        with runs.running_program(
            lambda ssc: ssc.queueStream([[1]]).foreachRDD(lambda rdd: None, name=name)
        ) as stepper:
            stepper.step()

    run("copy")
    with pytest.raises(RecoveryMismatchError, match="exactly-once output 'copy'"):
        run("renamed")


# -- folders of text --


OUTPUT = OutputBatch("location", "lines", 7, plan="p")


def save(
    sc: SparkContext, out: str, records: list[str], partitions: int = 1, output: Any = OUTPUT
) -> None:
    rdd = sc.parallelize(records, partitions)
    save_as_text_files(TIME, rdd, output, prefix=out, suffix=None)


def lines_in(folder: Path) -> str:
    return "".join(part.read_text() for part in sorted(folder.glob("part-*")))


def test_a_folder_is_written_once_and_nothing_is_left(sc: SparkContext, tmp_path: Path) -> None:
    unfinished = tmp_path / "_out-1001000" / "of-a-run-that-was-killed"
    unfinished.mkdir(parents=True)
    save(sc, str(tmp_path / "out"), ["a"])
    save(sc, str(tmp_path / "out"), ["never written"])
    assert os.listdir(tmp_path) == ["out-1001000"]
    assert lines_in(tmp_path / "out-1001000") == "a\n"


@pytest.mark.parametrize("renames", [True, False])
@pytest.mark.parametrize("by", ["output", "location_id", "plan"])
def test_a_folder_of_another_output_is_refused(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: bool, by: str
) -> None:
    """Also through a link, and when the batch runs again."""
    monkeypatch.setattr(text_files, "_RENAMING", text_files._RENAMING if renames else ())
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    save(sc, str(tmp_path / "real" / "out"), ["a"])
    other = replace(OUTPUT, may_be_written=True, **{by: "other"})
    for _ in range(2):
        with pytest.raises(SinkError, match="is not this output's: its records would be lost"):
            save(sc, str(tmp_path / "link" / "out"), ["b"], output=other)
    save(sc, str(tmp_path / "link" / "out"), ["a"])
    assert lines_in(tmp_path / "real" / "out-1001000") == "a\n"


def test_a_folder_without_a_note_is_of_the_output_that_may_have_written_it(
    sc: SparkContext, tmp_path: Path
) -> None:
    out = tmp_path / "out-1001000"
    sc.parallelize(["a"], 1).saveAsTextFile(str(out))  # as other programs
    with pytest.raises(SinkError, match="is not this output's"):
        save(sc, str(tmp_path / "out"), ["a"])
    save(sc, str(tmp_path / "out"), ["a"], output=replace(OUTPUT, may_be_written=True))
    save(sc, str(tmp_path / "out"), ["a"])
    with pytest.raises(SinkError, match="is not this output's"):
        save(sc, str(tmp_path / "out"), ["b"], output=replace(OUTPUT, output="other"))
    assert lines_in(out) == "a\n"


def test_two_outputs_with_one_prefix_end_the_program(
    ssc: StreamingContext, clock: ManualClock, tmp_path: Path
) -> None:
    letters = ssc.queueStream([["a", "b"]])
    letters.map(str.upper).saveAsTextFiles(str(tmp_path / "out"))
    letters.map(lambda letter: letter * 2).saveAsTextFiles(str(tmp_path / "out"))
    ssc.start()
    clock.advance(1000)
    with pytest.raises(BatchFailedError, match="is not this output's: its records would be lost"):
        ssc.awaitTermination()


def test_a_folder_that_an_earlier_release_left_unfinished_is_named(
    sc: SparkContext, tmp_path: Path
) -> None:
    (tmp_path / "out-1001000" / "_temporary").mkdir(parents=True)
    with pytest.raises(StreamingError, match=r"cut off.*out-1001000"):
        save(sc, str(tmp_path / "out"), ["a"])


def test_where_nothing_is_renamed_what_was_cut_off_is_written_again(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "_RENAMING", ())
    (tmp_path / "out-1001000" / "_temporary").mkdir(parents=True)
    save(sc, str(tmp_path / "out"), ["a"])
    save(sc, str(tmp_path / "out"), ["never written"])
    assert os.listdir(tmp_path) == ["out-1001000"]
    assert lines_in(tmp_path / "out-1001000") == "a\n"


def test_a_folder_is_durable_before_the_batch_is_done(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files before it has its name, and the name also if the run that gave it was killed."""
    out, synced = tmp_path / "new" / "out-1001000", []
    monkeypatch.setattr(
        text_files, "sync_path", lambda path: synced.append((Path(path), out.exists()))
    )
    save(sc, str(tmp_path / "new" / "out"), ["a", "b"], 2)
    assert {(path, True) for path in out.parents} <= {*synced}
    before = {path.name for path, named in synced if not named}
    assert {"part-00000", "part-00001", "_penstock"} < before
    assert {path.parent.name for path, named in synced if not named} >= {"_out-1001000"}
    synced.clear()
    save(sc, str(tmp_path / "new" / "out"), ["a", "b"], 2)
    assert {(path, True) for path in out.parents} == {*synced}


@pytest.mark.parametrize("has_note", [True, False])
def test_what_a_committer_without_unfinished_folders_was_publishing_is_written_again(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_note: bool
) -> None:
    """As those of S3A, which publish one file after the other; an empty note is as none."""
    monkeypatch.setattr(text_files, "_RENAMING", ())
    out = tmp_path / "out-1001000"
    sc.parallelize(["a"], 1).saveAsTextFile(str(out))
    if has_note:
        (out / "_penstock").touch()
    output = replace(OUTPUT, may_be_written=True)
    for _ in range(2):
        save(sc, str(tmp_path / "out"), ["a", "b"], 2, output=output)
    assert lines_in(out) == "a\nb\n"


@pytest.mark.parametrize("renames", [True, False])
def test_a_folder_without_what_tasks_wrote_is_not_taken_for_the_batch(
    sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    """As if they had written to another machine's disk: the driver only sees what it did itself."""
    whole = RDD.saveAsTextFile

    def elsewhere(rdd: RDD[Any], path: str, *_: Any) -> None:
        whole(rdd, path)
        for part in Path(path.removeprefix("file:")).glob("*part-00001*"):
            part.unlink()

    monkeypatch.setattr(text_files, "_RENAMING", text_files._RENAMING if renames else ())
    with monkeypatch.context() as patch:
        patch.setattr(RDD, "saveAsTextFile", elsewhere)
        for _ in range(2):
            with pytest.raises(UnsharedPathError, match="files of 1 of 2 partitions"):
                save(sc, str(tmp_path / "out"), ["a", "b"], 2)
    assert not (tmp_path / "out-1001000").exists()
    save(sc, str(tmp_path / "out"), ["a", "b"], 2)
    assert lines_in(tmp_path / "out-1001000") == "a\nb\n"


def test_a_batch_without_partitions_has_a_folder(sc: SparkContext, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    save_as_text_files(TIME, sc.emptyRDD(), OUTPUT, prefix=out, suffix=None)
    assert (tmp_path / "out-1001000").is_dir()


def wait_for(gate: str) -> Callable[[str], str]:
    def wait(record: str) -> str:
        Path(gate).with_suffix(".reached").touch()
        while not os.path.exists(gate):
            time.sleep(0.01)
        return record

    return wait


@pytest.mark.parametrize("sleeper", [["a", "b"], ["b", "a"]])
def test_a_driver_that_wakes_in_the_middle_leaves_its_successor_s_folder(
    sc: SparkContext, tmp_path: Path, sleeper: list[str]
) -> None:
    gate, out = tmp_path / "gate", str(tmp_path / "out" / "lines")
    asleep = sc.parallelize(sleeper, 1).map(wait_for(str(gate)))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(save_as_text_files, TIME, asleep, OUTPUT, prefix=out, suffix=None)
        assert eventually((tmp_path / "gate.reached").exists)
        save(sc, out, ["a", "b"])
        gate.touch()
        first.result(WAIT_S)
    assert os.listdir(tmp_path / "out") == ["lines-1001000"]
    assert lines_in(tmp_path / "out" / "lines-1001000") == "a\nb\n"


def test_hadoop_s_rename_refuses_to_replace(sc: SparkContext, tmp_path: Path) -> None:
    for content in ("first", "second"):
        folder = BatchFolder(sc, str(tmp_path / "out"), OUTPUT)
        sc.parallelize([content], 1).saveAsTextFile(folder.own)
        if content == "first":
            folder.publish_by_hadoop()
        else:
            with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
                folder.publish_by_hadoop()
    assert lines_in(tmp_path / "out") == "first\n"
