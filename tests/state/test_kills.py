"""A worker killed with SIGKILL at each system call of a batch, on disk and in the local copy."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from penstock.state import PartitionVersion, Version, VersionLog
from penstock.state import layers as layer_policy

from .helpers import OPERATOR, Runner

STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(STRACE is None, reason="strace is not installed: no kills tried"),
]

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload([__name__])

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


def take_step(place: str, tip: str, step: str, pipe: Connection) -> None:
    STEPS[step]()
    Runner(Path(f"{place}-trial")).batch(None, RECORDS, 1)  # what is imported late, is now
    pipe.send("ready")
    pipe.recv()
    finish(Path(place), tip)
    os._exit(0)  # the system calls of the interpreter's end are not ours


def finish(place: Path, tip: str) -> None:
    """Run the next batch, with retention, and publish its version."""
    runner = Runner(place)
    log = VersionLog(runner.storage, OPERATOR)
    after = runner.batch(tip, RECORDS, BATCHES + 1, oldest_tip=tip)
    log.publish(Version(BATCHES + 1, (PartitionVersion(after),)))


def traced(place: Path, tip: str, step: str, log: str | Path, inject: str | None = None) -> int:
    """Take the step in a new process under strace; return the process's exit code."""
    assert STRACE is not None
    ours, its = SPAWN.Pipe()
    process = SPAWN.Process(target=take_step, args=(str(place), tip, step, its))
    process.start()
    assert ours.recv() == "ready"
    options = ["-o", str(log), "-e", "trace=all", *(["-e", f"inject={inject}"] if inject else [])]
    tracer = subprocess.Popen([STRACE, *options, "-p", str(process.pid)], stderr=subprocess.PIPE)
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        if b"attached" not in said:
            pytest.skip(f"strace may not attach here, no kills tried: {said!r}")
        ours.send("go")
        process.join()
    finally:
        process.kill()
        tracer.communicate()
    assert process.exitcode is not None
    return process.exitcode


CHANGING = re.compile(r"^((p?write|fsync|rename|link|unlink|ftruncate|mkdir|flock)\w*\(|.*O_CREAT)")


def kill_points(place: Path, tip: str, step: str, log: Path) -> list[str]:
    """Take the step, and return what makes strace kill at each call that changes something."""
    assert traced(place, tip, step, log) == 0
    counts: Counter[str] = Counter()
    points = []
    for line in log.read_text().splitlines():
        call = line.partition("(")[0]
        counts[call] += 1
        if CHANGING.match(line):
            points.append(f"{call}:signal=SIGKILL:when={counts[call]}")
    return points


@pytest.mark.parametrize("step", STEPS)
def test_kill_at_each_system_call(tmp_path: Path, step: str) -> None:
    prepared, whole = tmp_path / "prepared", tmp_path / "whole"
    tip = prepare(prepared)
    shutil.copytree(prepared, whole)
    points = kill_points(whole, tip, step, tmp_path / "log")
    assert len(points) > 30
    # Both steps begin alike, with the copy catching up.
    for number, point in enumerate(points if step == "merge" else points[20::2]):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(place, tip, step, os.devnull, point) == -signal.SIGKILL, point
        check(place, tip)
        shutil.rmtree(place)
        shutil.rmtree(f"{place}-trial")


def check(place: Path, tip: str) -> None:
    """The next attempt finds what the killed one left, and ends as if it had never been."""
    if os.stat(place).st_ino % 2:  # on the same executor, or on another
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
