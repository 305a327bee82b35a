"""A program killed with SIGKILL at each system call of each step of the protocol.

Reads and writes of records are played by a file: ``done`` has a line for each batch that a sink
took in. What is checked is that a restart begins at or before what is done, and after the last
checkpoint that was whole.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.batched.checkpoints import Checkpoints, note_read
from penstock.kafka import KafkaRange
from penstock.storage import open_storage
from tests.strace import kill_points, needs_strace, traced

pytestmark = [pytest.mark.slow, needs_strace]
CHANGES = re.compile(
    r"(openat\(.*O_CREAT|openat2|mkdir|write|pwrite|ftruncate|fsync|fdatasync|link|unlink|rename|flock)"
)
"""What changes files: a kill elsewhere leaves what one of these did."""
FIRST, SECOND = KafkaRange("a", 0, 3, 6), KafkaRange("a", 0, 6, 10)


def open_path(place: Path | str) -> tuple[Checkpoints, int]:
    checkpoints = Checkpoints(place, keep=1)
    ends = checkpoints.open(["a"])
    if "a" not in ends:
        checkpoints.begin_topic("a", {0: 3})
    return checkpoints, ends.get("a", {0: 3})[0]


def run_batch(checkpoints: Checkpoints, done: Path, wanted: KafkaRange) -> None:
    checkpoints.begin([wanted])
    note_read(open_storage(checkpoints.url), "a", 0, wanted.end_offset)
    with done.open("a") as sink:
        sink.write(f"{wanted.start_offset} {wanted.end_offset}\n")
    checkpoints.finish([wanted])


def prepare(place: Path) -> None:
    """Leave what a program leaves that was killed in its second batch."""
    place.mkdir()
    checkpoints, _ = open_path(place / "path")
    run_batch(checkpoints, place / "done", FIRST)
    note_read(open_storage(place / "path"), "a", 0, SECOND.end_offset)
    checkpoints.close()


def make_ready(place: str, step: str) -> Callable[[], object]:
    if step == "open":
        return partial(open_path, f"{place}/path")
    checkpoints, _ = open_path(f"{place}/path")
    return partial(run_batch, checkpoints, Path(place, "done"), SECOND)


def check(place: Path) -> int:
    """Restart, and continue to the end; return where it began."""
    checkpoints, start = open_path(place / "path")
    file = place / "done"
    done = [tuple(map(int, line.split())) for line in file.read_text().splitlines()]
    assert start <= max(end for _, end in done)
    assert not (place / "path/dirty_bit").exists()
    assert not any(each.is_file() for each in (place / "path/write-ahead-logs").rglob("*"))
    assert start in (6, 10)
    for begin in range(start, 12, 2):
        run_batch(checkpoints, file, KafkaRange("a", 0, begin, begin + 2))
    checkpoints.close()
    done = [tuple(map(int, line.split())) for line in file.read_text().splitlines()]
    times = [sum(begin <= n < end for begin, end in done) for n in range(3, 12)]
    assert 0 not in times, "a record was skipped"
    assert times[:3] == [1, 1, 1], "a record was done again that a checkpoint had"
    assert max(times) <= 2
    left = {each.name for each in (place / "path/a").iterdir()}
    assert len(left) == 1, "what a kill left is removed"
    return start


@pytest.mark.parametrize(
    ("step", "starts"),
    [pytest.param("open", {6}, marks=pytest.mark.storm), ("batch", {6, 10})],
)
def test_kill_at_each_system_call(tmp_path: Path, step: str, starts: set[int]) -> None:
    prepared, whole = tmp_path / "prepared", tmp_path / "whole"
    prepare(prepared)
    shutil.copytree(prepared, whole)
    points = kill_points(make_ready, (str(whole), step), tmp_path / "log", CHANGES)
    found = {check(whole)}
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(make_ready, (str(place), step), os.devnull, point) == -signal.SIGKILL, point
        found.add(check(place))
    assert found == starts


@pytest.mark.storm
def test_kill_at_each_system_call_of_the_first_open(tmp_path: Path) -> None:
    points = kill_points(make_ready, (str(tmp_path / "whole"), "open"), tmp_path / "log", CHANGES)
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        assert traced(make_ready, (str(place), "open"), os.devnull, point) == -signal.SIGKILL
        checkpoints, start = open_path(place / "path")
        assert start == 3
        run_batch(checkpoints, place / "done", FIRST)
        checkpoints.close()
