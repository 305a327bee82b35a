"""A driver killed with SIGKILL at each system call of each step of the protocol."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation, CommitMetadata
from tests.strace import kill_points, needs_strace, traced

from .conftest import as_given, offsets_of

pytestmark = [pytest.mark.slow, needs_strace]

STEPS: dict[str, Callable[[CheckpointLocation], object]] = {
    "plan": lambda location: location.plan(6, offsets_of(6)),
    "commit": lambda location: location.commit(5),
    "retire": lambda location: location.retire(),
    "acquire": lambda location: location.acquire(),
}
UNCOMMITTED = {
    "plan": {(5,), (5, 6)},
    "commit": {(5,), ()},
    "retire": {(6,)},
    "acquire": {(5,)},
}


def prepare(place: Path) -> None:
    """Leave a location with batches 0 to 4 done and batch 5 planned."""
    with CheckpointLocation(place) as location:
        for batch_id in range(6):
            location.plan(batch_id, offsets_of(batch_id))
        for batch_id in range(5):
            location.commit(batch_id)


def make_ready(place: str, step: str) -> Callable[[], object]:
    location = CheckpointLocation(place)
    if step != "acquire":
        location.acquire(1)
    if step == "retire":
        location.commit(5)
        location.plan(6, offsets_of(6))
    return partial(STEPS[step], location)


def check(place: Path, step: str) -> tuple[int, ...]:
    """Check what the kill left, then take the step again; return what was uncommitted."""
    location = CheckpointLocation(place)
    plan = location.acquire(1)  # the lock is free at once
    assert plan.rerun in UNCOMMITTED[step]
    assert plan.next_batch_id == max(location.offsets.batch_ids()) + 1
    for batch_id in location.offsets.batch_ids():
        assert as_given(location.offsets.require(batch_id)) == offsets_of(batch_id)
    for batch_id in location.commits.batch_ids():
        assert location.commits.get(batch_id) == CommitMetadata()
    if step != "acquire" and not (step == "plan" and 6 in plan.rerun):  # an id is planned once
        STEPS[step](location)
    if step == "plan":
        assert location.recover().rerun == (5, 6)
    if step == "commit":
        assert location.recover().rerun == ()
    if step == "retire":
        assert location.offsets.batch_ids() == (5, 6)
        assert location.commits.batch_ids() == (5,)
    assert location.offsets.orphans() == location.commits.orphans() == ()
    location.release()
    return plan.rerun


@pytest.mark.storm
@pytest.mark.parametrize("step", STEPS)
def test_kill_at_each_system_call(tmp_path: Path, step: str) -> None:
    prepared, whole = tmp_path / "prepared", tmp_path / "whole"
    prepare(prepared)
    shutil.copytree(prepared, whole)
    points = kill_points(make_ready, (str(whole), step), tmp_path / "log")
    found = {check(whole, step)}
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(make_ready, (str(place), step), os.devnull, point) == -signal.SIGKILL, point
        found.add(check(place, step))
    assert found == UNCOMMITTED[step]


def test_kill_at_each_system_call_of_the_first_acquire(tmp_path: Path) -> None:
    args = (str(tmp_path / "whole"), "acquire")
    points = kill_points(make_ready, args, tmp_path / "log")
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        assert traced(make_ready, (str(place), "acquire"), os.devnull, point) == -signal.SIGKILL, (
            point
        )
        with CheckpointLocation(place) as location:
            location_id = location.read_id()
            location.plan(0, offsets_of(0))
        assert CheckpointLocation(place).read_id() == location_id
