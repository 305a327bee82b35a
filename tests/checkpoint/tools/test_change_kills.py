"""A change killed with SIGKILL at each system call that changes files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.checkpoint.tools import (
    apply_fork,
    apply_plan,
    inspect,
    plan_fork,
    plan_rewind,
    plan_undo,
    validate,
)
from tests.strace import kill_points, needs_strace, traced

from .queries import write_stateless
from .test_changes import files_of, undo_files

pytestmark = [pytest.mark.slow, needs_strace]

CHANGING = re.compile(r"link\(|unlink\((?!.*\.tmp\")|rename\(|mkdir\(")
BARRIER = "offsets/9223372036854775807"


def begin(place: str, direction: str) -> Callable[[], object]:
    if direction == "forth":
        return partial(apply_plan, plan_rewind(place, to_batch=1))
    return partial(apply_plan, plan_undo(undo_files(Path(place))[0]))


@pytest.mark.parametrize("direction", ["forth", "back"])
def test_kill_at_each_change_of_a_file(tmp_path: Path, direction: str) -> None:
    """The location is as before, as planned, or refused until the change is taken back."""
    prepared = write_stateless(tmp_path / "prepared", batches=3)
    before = without_times(files_of(prepared))
    if direction == "back":
        apply_plan(plan_rewind(prepared, to_batch=1))
    whole = Path(shutil.copytree(prepared, tmp_path / "whole"))
    points = kill_points(begin, (str(whole), direction), tmp_path / "calls", CHANGING)
    after = without_times(files_of(whole))
    states = [before, after if direction == "forth" else without_times(files_of(prepared))]

    refused = 0
    for number, point in enumerate(points if direction == "forth" else points[::3]):
        place = Path(shutil.copytree(prepared, tmp_path / f"{number}"))
        assert traced(begin, (str(place), direction), tmp_path / "log", point) != 0
        left = without_times(files_of(place))
        if BARRIER in left:
            refused += 1
            assert inspect(place).next.problem is not None
        else:
            assert left in states, point
        if undo_files(place):
            apply_plan(plan_undo(undo_files(place)[-1]))
        assert without_times(files_of(place)) == before
        assert {f.severity for f in validate(place).findings} <= {"note"}
    assert refused > (5 if direction == "forth" else 1)


def begin_fork(place: str, target: str) -> Callable[[], object]:
    return partial(apply_fork, plan_fork(place, target))


@pytest.mark.storm
def test_kill_a_fork_at_each_file(tmp_path: Path) -> None:
    """No query starts on what is there before it is whole."""
    query = write_stateless(tmp_path / "query", batches=7)
    whole = str(tmp_path / "whole")
    points = kill_points(begin_fork, (str(query), whole), tmp_path / "calls", CHANGING)
    names = whole_files(whole)
    for number, point in enumerate((*points[:-9:20], *points[-9:])):
        target = str(tmp_path / f"{number}")
        assert traced(begin_fork, (str(query), target), tmp_path / "log", point) != 0
        left = whole_files(target)
        assert not left or left == names or inspect(target).next.problem, point


def whole_files(place: str) -> set[str]:
    return {name for name in files_of(Path(place)) if ".tmp" not in name}


def without_times(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files of a location without temporary ones, and the times of new batches."""
    kept = {path: data for path, data in files.items() if ".tmp" not in path}
    times = re.compile(rb'"batchTimestampMs":\d+')
    return {p: times.sub(b"", d) for p, d in kept.items() if not p.endswith(".crc")}
