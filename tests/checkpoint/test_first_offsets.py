"""Where inputs begin: resolved once, whatever is killed and whoever else is alive."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.first_offsets import FirstOffset, FirstOffsets
from penstock.errors import LogFormatError
from penstock.storage import open_storage
from tests.forked import FORKS
from tests.strace import kill_points, needs_strace, traced


def at(end: int) -> dict[str, Any]:
    return {"clicks": {"0": end}}


def settled(place: Path) -> FirstOffset | None:
    return FirstOffsets(open_storage(place)).get("clicks")


def test_the_file_has_the_form_of_spark_s_sources(tmp_path: Path) -> None:
    offsets = FirstOffsets(open_storage(tmp_path))
    offsets.settle("clicks", at(17))
    offsets.settle("table", None)
    assert (tmp_path / "sources/clicks/0").read_bytes() == b'v1\n{"clicks":{"0":17}}'
    assert (tmp_path / "sources/table/0").read_bytes() == b"v1\nnull"
    assert offsets.names() == ["clicks", "table"]


@pytest.mark.parametrize("first", [at(3), None])
def test_what_is_there_stands(tmp_path: Path, first: Any) -> None:
    assert settled(tmp_path) is None
    for later in (first, at(9), None):
        offsets = FirstOffsets(open_storage(tmp_path))
        assert offsets.settle("clicks", later) == FirstOffset(first)
        assert offsets.get("clicks") == settled(tmp_path) == FirstOffset(first)


def test_neither_a_purge_nor_a_restart_changes_it(tmp_path: Path) -> None:
    for run in range(2):
        location = CheckpointLocation(tmp_path)
        location.acquire(1)
        location.first_offsets.settle("clicks", at(run))
        for _ in range(5):
            batch_id = location.next_id
            location.plan(batch_id, OffsetSeq(1, sources=("{}",)))
            location.commit(batch_id)
        location.retire()
        location.release()
    assert settled(tmp_path) == FirstOffset(at(0))


@pytest.mark.parametrize("content", [b"", b"v2\nnull", b"v1\nnul", b'v1\n{"a": 1}'])
def test_damage_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    FirstOffsets(open_storage(tmp_path)).settle("clicks", None)
    (tmp_path / "sources/clicks/.0.crc").unlink()
    (tmp_path / "sources/clicks/0").write_bytes(content)
    with pytest.raises(LogFormatError, match=r"sources/clicks/0"):
        settled(tmp_path)


def test_a_file_that_does_not_fit_its_checksum_is_refused(tmp_path: Path) -> None:
    FirstOffsets(open_storage(tmp_path)).settle("clicks", at(17))
    (tmp_path / "sources/clicks/0").write_bytes(b'v1\n{"clicks":{"0":18}}')
    with pytest.raises(LogFormatError, match="checksum"):
        settled(tmp_path)


def start(place: str, newest: int) -> Callable[[], object]:
    """Make ready a driver that begins at the newest record, and plans all that come meanwhile."""

    def run() -> None:
        location = CheckpointLocation(place)
        if location.acquire().next_batch_id > 0:
            return
        first = location.first_offsets.settle("clicks", at(newest))
        begin = first.offset["clicks"]["0"]
        end = f'{{"clicks":{{"0":{newest}}}}}'
        location.plan(0, OffsetSeq(1, conf={"begin": str(begin)}, sources=(end,)))

    return run


@pytest.mark.storm
@pytest.mark.slow
@needs_strace
def test_a_start_killed_at_each_system_call_begins_where_the_first_one_did(tmp_path: Path) -> None:
    points = kill_points(start, (str(tmp_path / "whole"), 10), tmp_path / "log")
    begun = set()
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        place.mkdir()
        assert traced(start, (str(place), 10), os.devnull, point) == -signal.SIGKILL, point
        first = settled(place)
        planned = CheckpointLocation(place).offsets.get(0)
        assert first in (None, FirstOffset(at(10)))
        assert first is not None or planned is None
        start(str(place), 20)()
        begin = 20 if first is None else 10
        assert settled(place) == FirstOffset(at(begin))
        planned = CheckpointLocation(place).offsets.get(0)
        assert planned is not None
        assert planned.conf["begin"] == str(begin)
        begun.add(begin)
        shutil.rmtree(place)
    assert begun == {10, 20}


def settle_many(place: str, own: int, names: list[str], pipe: Connection) -> None:
    offsets = FirstOffsets(open_storage(place))
    pipe.send("ready")
    pipe.recv()
    pipe.send([offsets.settle(name, at(own)) for name in names])


def test_two_drivers_that_start_at_once_begin_at_the_same_offsets(tmp_path: Path) -> None:
    names = [f"in-{number}" for number in range(40)]
    pipes, processes = [], []
    for own in (1, 2):
        ours, its = FORKS.Pipe()
        process = FORKS.Process(target=settle_many, args=(str(tmp_path), own, names, its))
        process.start()
        pipes.append(ours)
        processes.append(process)
    assert [pipe.recv() for pipe in pipes] == ["ready", "ready"]
    for pipe in pipes:
        pipe.send("go")
    one, other = (pipe.recv() for pipe in pipes)
    for process in processes:
        process.join()
    assert one == other
    assert one == [FirstOffsets(open_storage(tmp_path)).get(name) for name in names]
