"""``rewind`` of a penstock program: its batches run again under their ids."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools import apply_plan, inspect, plan_promote, plan_rewind, plan_undo
from penstock.errors import CheckpointError, ConcurrentDriverError, ConfigError
from penstock.journal import JournalStream, RecordFormat
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.journal.helpers import write_blocks

from .test_changes import files_of


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A location with a journal: batches 0 to 3 are done, and took a block of two records each."""
    place = tmp_path / "program"
    stream = JournalStream.create(open_storage(place / "journal"), "clicks", RecordFormat("string"))
    writer = write_blocks(stream, [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]])
    with CheckpointLocation(place) as driver:
        for batch_id in range(4):
            line = f'{{"clicks":{{"{writer}":{2 * batch_id + 2}}}}}'
            driver.plan(batch_id, OffsetSeq(1_600_000_000_000 + 1000 * batch_id, sources=(line,)))
            driver.commit(batch_id)
    return place


def test_many_batches_that_run_again_are_told_in_a_few_words(program: Path) -> None:
    told = plan_rewind(program, to_batch=0).meaning[0]
    assert told.startswith("batches 1 to 3 (3 batches) run again, under their ids")


def test_batches_run_again_under_their_ids(program: Path) -> None:
    before = files_of(program)
    plan = plan_rewind(program, to_batch=1)
    paths = [each.path for each in plan.changes if not each.path.endswith(".crc")]
    assert paths == ["commits/3", "commits/2", "rewound"]
    assert plan.meaning[0].startswith("batches 2, 3 run again, under their ids")
    assert plan.meaning[1].startswith("clicks: 4 records again, none retired")

    undo = apply_plan(plan)
    assert inspect(program).next.rerun == (2, 3)
    apply_plan(plan_undo(undo))
    after = files_of(program)
    after["driver.lock"] = before["driver.lock"]
    assert after == before

    undo = apply_plan(plan_rewind(program, to_batch=1))
    waiting = plan_undo(undo)
    with CheckpointLocation(program) as driver:
        assert driver.undone() == [2, 3]
    for attempt in (lambda: plan_undo(undo), lambda: apply_plan(waiting)):
        with pytest.raises(CheckpointError, match="a query has run on it: not all files"):
            attempt()


def test_a_running_program_refuses_it(program: Path) -> None:
    plan = plan_rewind(program, shift_by=2)
    with (
        CheckpointLocation(program),
        pytest.raises(ConcurrentDriverError, match="another driver uses"),
    ):
        apply_plan(plan)
    assert not (program / "undo").exists()


def test_a_program_that_ran_since_refuses_to_undo(program: Path) -> None:
    undo = apply_plan(plan_rewind(program, to_batch=2))
    with CheckpointLocation(program) as driver:
        driver.commit(3)
        line = driver.offsets.require(3).sources
        driver.plan(4, OffsetSeq(1_600_000_004_000, sources=line))
    with pytest.raises(CheckpointError, match="batch 4 was planned since"):
        plan_undo(undo)


def test_a_driver_refuses_half_a_change(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from .interruptions import interrupt

    interrupt(plan_rewind(program, to_batch=0), monkeypatch, after=2)
    with pytest.raises(CheckpointError, match="newer version of Spark"):
        CheckpointLocation(program).acquire()
    (undo,) = (program / "undo").iterdir()
    apply_plan(plan_undo(undo))
    with CheckpointLocation(program) as driver:
        assert driver.undone() == []


def test_records_that_are_gone_refuse_it(program: Path) -> None:
    for block in sorted((program / "journal/clicks").rglob("*.parquet"))[:2]:
        block.unlink()
    with pytest.raises(CheckpointError, match="that would be processed again are gone"):
        plan_rewind(program, to_batch=0)


def test_what_is_not_for_programs(program: Path, own: Path) -> None:
    with pytest.raises(CheckpointError, match="not from any offsets"):
        plan_rewind(program, to_offsets={"0": {}})
    with pytest.raises(CheckpointError, match="by its entry"):
        plan_promote(program, 1)
    with pytest.raises(ConfigError, match="not kept"):
        plan_rewind(program, to_batch=9)
    assert "not in this location's journal" in plan_rewind(own, to_batch=0).meaning[1]


def test_inspect_tells_how_far_the_journal_is_ahead(program: Path) -> None:
    """Of records that no batch has planned; a journal that is gone is not an obstacle."""
    stream = JournalStream.open(open_storage(program / "journal"), "clicks")
    write_blocks(stream, [["i", "j", "k"]])
    assert inspect(program).lag == {"0 clicks": 3}
    shown = Commands("checkpoint").succeed("inspect", str(program))
    assert "behind: 3 records of source 0 clicks" in shown
    shutil.rmtree(program / "journal")
    assert inspect(program).lag == {}


def gone(file: Path) -> None:
    file.unlink()


def other_length(file: Path) -> None:
    file.write_text(file.read_text() + "more")


def other_time(file: Path) -> None:
    os.utime(file, (1_600_000_000, 1_600_000_000))


def untouched(file: Path) -> None:
    """Leave it as it was planned."""


@pytest.mark.parametrize("change", [untouched, gone, other_length, other_time])
@pytest.mark.parametrize("is_needed", [True, False])
def test_files_that_would_be_read_again_are_looked_for(
    tmp_path: Path, change: Callable[[Path], None], *, is_needed: bool
) -> None:
    """Else each start would fail, and the change could not be taken back any more."""
    place, inputs = tmp_path / "program", tmp_path / "in 100%"
    inputs.mkdir()
    with CheckpointLocation(place) as driver:
        for batch_id in range(4):
            file = inputs / f"{batch_id}.txt"
            file.write_text("a line\n")
            listed = [file.name, file.stat().st_mtime_ns // 1_000_000, 7]
            end = {"after": batch_id, "until": batch_id + 1, "files": {f"file:{inputs}": [listed]}}
            line = json.dumps({"in": end}, separators=(",", ":"))
            driver.plan(batch_id, OffsetSeq(1_600_000_000_000 + batch_id, sources=(line,)))
            driver.commit(batch_id)
    change(inputs / ("3.txt" if is_needed else "1.txt"))
    if is_needed and change is not untouched:
        with pytest.raises(CheckpointError, match=r"1 of 2 files of source 0 .*3.txt"):
            plan_rewind(place, to_batch=1)
    else:
        assert "source 0: 2 files again" in plan_rewind(place, to_batch=1).meaning
