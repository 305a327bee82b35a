"""A driver killed with SIGKILL at each system call of each step of the protocol."""

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

from penstock.checkpoint import CheckpointLocation, CommitMetadata

from .conftest import offsets_of

STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(STRACE is None, reason="strace is not installed: no kills tried"),
]

# A clean process for each kill, also where this one has threads; forked from one that has imported
# everything, because a fresh interpreter would take most of the time.
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload([__name__])

STEPS: dict[str, Callable[[CheckpointLocation], object]] = {
    "plan": lambda location: location.plan(6, offsets_of(6)),
    "commit": lambda location: location.commit(5),
    "retire": lambda location: location.retire(1),
    "acquire": lambda location: location.acquire(),
}
UNCOMMITTED = {
    "plan": {(5,), (5, 6)},
    "commit": {(5,), ()},
    "retire": {(5,)},
    "acquire": {(5,)},
}


def prepare(place: Path) -> None:
    """Leave a location with batches 0 to 4 done and batch 5 planned."""
    with CheckpointLocation(place) as location:
        for batch_id in range(6):
            location.plan(batch_id, offsets_of(batch_id))
        for batch_id in range(5):
            location.commit(batch_id)


def take_step(place: str, step: str, pipe: Connection) -> None:
    location = CheckpointLocation(place)
    if step != "acquire":
        location.acquire()
    pipe.send("ready")
    pipe.recv()
    STEPS[step](location)
    os._exit(0)  # the system calls of the interpreter's end are not ours


def traced(place: Path, step: str, log: str | Path, inject: str | None = None) -> int:
    """Take a step in a new process under strace; return the process's exit code."""
    assert STRACE is not None
    ours, its = SPAWN.Pipe()
    process = SPAWN.Process(target=take_step, args=(str(place), step, its))
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


def kill_points(place: Path, step: str, log: Path) -> list[str]:
    """Take a step, and return what makes strace kill at each of its system calls in turn."""
    assert traced(place, step, log) == 0
    counts: Counter[str] = Counter()
    points = []
    for call in re.findall(r"^(\w+)\(", log.read_text(), re.MULTILINE):
        counts[call] += 1
        points.append(f"{call}:signal=SIGKILL:when={counts[call]}")
    return points


def check(place: Path, step: str) -> tuple[int, ...]:
    """Check what the kill left, then take the step again; return what was uncommitted."""
    location = CheckpointLocation(place)
    plan = location.acquire()  # the lock is free at once
    assert plan.rerun in UNCOMMITTED[step]
    assert plan.next_batch_id == max(location.offsets.batch_ids()) + 1
    for batch_id in location.offsets.batch_ids():
        assert location.offsets.get_for(batch_id, 1) == offsets_of(batch_id)
    for batch_id in location.commits.batch_ids():
        assert location.commits.get(batch_id) == CommitMetadata()
    if step != "acquire":
        STEPS[step](location)
    if step == "plan":
        assert location.uncommitted() == (5, 6)
    if step == "commit":
        assert location.uncommitted() == ()
    if step == "retire":
        assert location.offsets.batch_ids() == (4, 5)
        assert location.commits.batch_ids() == (4,)
    assert location.offsets.stray() == location.commits.stray() == ()
    location.release()
    return plan.rerun


@pytest.mark.parametrize("step", STEPS)
def test_kill_at_each_system_call(tmp_path: Path, step: str) -> None:
    prepared, whole = tmp_path / "prepared", tmp_path / "whole"
    prepare(prepared)
    shutil.copytree(prepared, whole)
    points = kill_points(whole, step, tmp_path / "log")
    assert len(points) > 10
    found = {check(whole, step)}
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(place, step, os.devnull, point) == -signal.SIGKILL, point
        found.add(check(place, step))
    assert found == UNCOMMITTED[step]


def test_kill_at_each_system_call_of_the_first_acquire(tmp_path: Path) -> None:
    points = kill_points(tmp_path / "whole", "acquire", tmp_path / "log")
    assert len(points) > 10
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        assert traced(place, "acquire", os.devnull, point) == -signal.SIGKILL, point
        with CheckpointLocation(place) as location:
            location_id = location.read_id()
            location.plan(0, offsets_of(0))
        assert CheckpointLocation(place).read_id() == location_id
