"""A worker killed with SIGKILL at each system call of a batch, on disk and in the local copy."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.state import PartitionVersion, Version, VersionLog
from penstock.state import layers as layer_policy
from tests.strace import kill_points, needs_strace, traced

from .helpers import OPERATOR, Runner

pytestmark = [pytest.mark.slow, needs_strace]

BATCHES = 5
RECORDS = [("a", 1), ("b", 2), ("a", 0), ("c", 3)]
WANTED = {"b": 2 * (BATCHES + 1), "c": 3 * (BATCHES + 1)}


def prepare(place: Path) -> str:
    """Leave a partition after some batches, of which the local copy holds all but the last."""
    runner = Runner(place)
    tip = None
    for time_ms in range(1, BATCHES + 1):
        tip = runner.batch(tip, RECORDS, time_ms, oldest_tip=tip)
    assert tip is not None
    return tip


def merge_often() -> None:
    layer_policy.FAN_IN = 3


def snapshot_often() -> None:
    layer_policy._LEAST_CHANGES_BYTES = 100


STEPS: dict[str, Callable[[], None]] = {"merge": merge_often, "snapshot": snapshot_often}


def ready(place: str, tip: str, step: str) -> Callable[[], object]:
    STEPS[step]()
    Runner(Path(f"{place}-trial")).batch(None, RECORDS, 1)  # what is imported late, is now
    return lambda: finish(Path(place), tip)


def finish(place: Path, tip: str) -> None:
    """Run the next batch, with retention, and publish its version."""
    runner = Runner(place)
    log = VersionLog(runner.storage, OPERATOR)
    after = runner.batch(tip, RECORDS, BATCHES + 1, oldest_tip=tip)
    log.publish(Version(BATCHES + 1, (PartitionVersion(after),)))


CHANGING = re.compile(r"^((p?write|fsync|rename|link|unlink|ftruncate|mkdir|flock)\w*\(|.*O_CREAT)")


@pytest.mark.parametrize("step", STEPS)
def test_kill_at_each_system_call(tmp_path: Path, step: str) -> None:
    prepared, whole = tmp_path / "prepared", tmp_path / "whole"
    tip = prepare(prepared)
    shutil.copytree(prepared, whole)
    points = kill_points(ready, (str(whole), tip, step), tmp_path / "log", CHANGING)
    assert len(points) > 30
    # Both steps begin alike, with the copy catching up.
    for number, point in enumerate(points if step == "merge" else points[20::2]):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(ready, (str(place), tip, step), os.devnull, point) == -signal.SIGKILL, point
        check(place, tip, executor_lost=number % 2 == 1)
        shutil.rmtree(place)
        shutil.rmtree(f"{place}-trial")


def check(place: Path, tip: str, *, executor_lost: bool) -> None:
    """The next attempt finds what the killed one left, and ends as if it had never been."""
    if executor_lost:
        shutil.rmtree(place / "executor")
    finish(place, tip)
    runner = Runner(place)
    (version,) = VersionLog(runner.storage, OPERATOR).times
    assert version == BATCHES + 1
    for executor in ("executor", "another"):
        reader = Runner(place, executor=executor)
        after = f"{version:020d}-00000001.delta"
        assert reader.state(after) == WANTED
        assert len(reader.outputs(after, version)) == len(RECORDS)
