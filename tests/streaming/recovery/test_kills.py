"""Writing and replacing graph checkpoints, killed with SIGKILL at each system call of each step."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.storage import open_storage
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.files import get_checkpoint_files, remove_checkpoint_files
from penstock.streaming.recovery.pickling import pickle_graph
from penstock.streaming.recovery.recreate import CheckpointReader
from penstock.streaming.recovery.run import GraphCheckpoints
from penstock.streaming.recovery.writer import CheckpointWriteHandler
from tests.strace import kill_points, needs_strace, traced

pytestmark = [pytest.mark.slow, needs_strace]

NEWEST_MS = 10_000
WRITES = {
    "a new time": (11_000, (11_000,)),
    "the same time again": (NEWEST_MS, (NEWEST_MS,)),
}


def save(place: str, time_ms: int, pending: tuple[int, ...]) -> Callable[[], object]:
    """Make ready to write a checkpoint."""
    graph = pickle_graph(DStreamGraph(1000))
    checkpoint = Checkpoint("local", "x", (), graph, time_ms, place, 1000, pending, ())
    storage = open_storage(place).private()
    handler = CheckpointWriteHandler(storage, "lz4")
    return lambda: handler.run(checkpoint)


def remove(place: str) -> Callable[[], object]:
    """Make ready to remove all checkpoints."""
    storage = open_storage(place)
    return lambda: remove_checkpoint_files(storage)


def read(place: Path) -> Checkpoint:
    found = CheckpointReader(open_storage(place)).read()
    assert found is not None
    return found


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A location with ten checkpoints and a backup that a kill left."""
    place = tmp_path / "prepared"
    place.mkdir()
    for time_ms in range(1000, NEWEST_MS + 1, 1000):
        save(str(place), time_ms, ())()
    (place / f"checkpoint-{NEWEST_MS}.bk").write_bytes(b"")
    return place


@pytest.mark.parametrize("kind", WRITES)
def test_a_kill_leaves_the_last_write_or_the_one_before(
    tmp_path: Path, prepared: Path, kind: str
) -> None:
    time_ms, pending = WRITES[kind]
    before, after = (NEWEST_MS, ()), (time_ms, pending)
    whole = tmp_path / "whole"
    shutil.copytree(prepared, whole)
    found = set()
    for point in [None, *kill_points(save, (str(whole), time_ms, pending), tmp_path / "log")]:
        place = whole
        if point is not None:
            place = tmp_path / "killed"
            shutil.copytree(prepared, place)
            args = (str(place), time_ms, pending)
            assert traced(save, args, os.devnull, point) == -signal.SIGKILL, point
        checkpoint = read(place)
        found.add((checkpoint.checkpoint_time_ms, checkpoint.pending_times))
        save(str(place), 12_000, ())()  # the next run goes on
        assert read(place).checkpoint_time_ms == 12_000
        files = get_checkpoint_files(open_storage(place))
        assert len(files) == 10
        assert not any(file.is_backup for file in files)
        if point is not None:
            shutil.rmtree(place)
    assert found == {before, after}


def test_a_kill_while_all_are_removed_leaves_the_newest_or_none(
    tmp_path: Path, prepared: Path
) -> None:
    for older in range(1000, NEWEST_MS - 1000, 1000):
        (prepared / f"checkpoint-{older}").unlink()
    whole = tmp_path / "whole"
    shutil.copytree(prepared, whole)
    points = kill_points(remove, (str(whole),), tmp_path / "log")
    assert CheckpointReader(open_storage(whole)).read() is None
    for point in points:
        place = tmp_path / "killed"
        shutil.copytree(prepared, place)
        assert traced(remove, (str(place),), os.devnull, point) == -signal.SIGKILL, point
        found = CheckpointReader(open_storage(place)).read()
        assert found is None or found.checkpoint_time_ms == NEWEST_MS
        shutil.rmtree(place)


def replace_graph(place: str) -> Callable[[], object]:
    """Make ready what a run with another graph does when it has planned its first batch."""
    template = Checkpoint(
        "local", "new", (), pickle_graph(DStreamGraph(1000)), 0, place, 1000, (), ()
    )
    run = GraphCheckpoints(template, "lz4", interval_ms=0, is_read_back=False)
    run.start(open_storage(place))
    run.write(11_000, ())  # at the start: nothing changes yet
    return lambda: run.supersede(12_000, ())


def test_a_kill_while_a_graph_is_replaced_leaves_one_of_the_two(
    tmp_path: Path, prepared: Path
) -> None:
    for older in range(1000, NEWEST_MS - 1000, 1000):
        (prepared / f"checkpoint-{older}").unlink()
    whole = tmp_path / "whole"
    shutil.copytree(prepared, whole)
    log = tmp_path / "log"
    assert traced(replace_graph, (str(whole),), log, threads=True) == 0
    assert [file.time_ms for file in get_checkpoint_files(open_storage(whole))] == [12_000]
    # The writer's thread writes and deletes; each of its calls is counted within it.
    calls = re.findall(r"^\d+ +(openat|write|fsync|rename\w*|unlink\w*)\(", log.read_text(), re.M)
    found = []
    for call, count in Counter(calls).items():
        for when in range(1, count + 1):
            place = tmp_path / "killed"
            shutil.copytree(prepared, place)
            point = f"{call}:signal=SIGKILL:when={when}"
            traced(replace_graph, (str(place),), os.devnull, point, threads=True)
            found.append(read(place).framework)
            shutil.rmtree(place)
    assert set(found) == {"x", "new"}
