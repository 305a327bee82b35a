"""What differs from pyspark.streaming on purpose, seen on both engines (docs/migrating.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from tests.streaming.engines import Outputs, collect, ours, step_theirs, theirs

pytestmark = pytest.mark.spark


def test_keys_without_values_leave_group_by_key_and_window(
    sc: SparkContext, tmp_path: Path
) -> None:
    def define(ssc: Any) -> Outputs:
        outputs: Outputs = {"end": []}
        collect(ssc.queueStream([[("a", 1)], [("b", 2)]]).groupByKeyAndWindow(6, 1), outputs["end"])
        return outputs

    with ours(sc) as (ssc, stepper):
        mine = define(ssc)["end"]
        ssc.start()
        stepper.step(7)
    with theirs(sc, tmp_path) as their_ssc:
        outputs = define(their_ssc)
        their_ssc.start()
        step_theirs(their_ssc, outputs, 7)
    both = [("a", [1]), ("b", [2])]
    assert mine[:6] == outputs["end"][:6] == [(1.0, both[:1]), *((n, both) for n in range(2, 7))]
    assert mine[6] == (7.0, [("b", [2])])
    assert outputs["end"][6] == (7.0, [("a", []), ("b", [2])])


def test_folders_in_a_monitored_directory_are_passed_over(sc: SparkContext, tmp_path: Path) -> None:
    def inbox(name: str) -> Path:
        folder = tmp_path / name / "folder"
        folder.mkdir(parents=True)
        (folder / "a").write_text("a")
        os.utime(folder, (0.5, 0.5))
        return folder.parent

    mine: Outputs = {"end": []}
    with ours(sc) as (ssc, stepper):
        collect(ssc.textFileStream(str(inbox("ours"))), mine["end"])
        ssc.start()
        stepper.step()
    other: Outputs = {"end": []}
    with theirs(sc, tmp_path / "checkpoint") as their_ssc:
        collect(their_ssc.textFileStream(str(inbox("theirs"))), other["end"])
        their_ssc.start()
        step_theirs(their_ssc, other, 1)
    assert mine["end"] == [(1.0, [])]
    assert other["end"] == [(1.0, ["a"])]


def test_names_that_begin_with_an_underscore_are_passed_over(
    sc: SparkContext, tmp_path: Path
) -> None:
    def put(folder: Path) -> str:
        folder.mkdir()
        (folder / "_a").write_text("a")
        os.utime(folder / "_a", (0.5, 0.5))
        return str(folder)

    mine: Outputs = {"end": []}
    with ours(sc) as (ssc, stepper):
        collect(ssc.textFileStream(put(tmp_path / "ours")), mine["end"])
        ssc.start()
        stepper.step()
    assert mine["end"] == [(1.0, [])]
    with theirs(sc, tmp_path / "checkpoint") as their_ssc:
        outputs: Outputs = {"end": []}
        collect(their_ssc.textFileStream(put(tmp_path / "theirs")), outputs["end"])
        their_ssc.start()
        with pytest.raises(Py4JJavaError, match="Input path does not exist"):
            step_theirs(their_ssc, outputs, 1)
