"""What a direct stream keeps in the checkpoint location: lost ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.journal.losses.loss_log import read_losses, source_folder
from penstock.kafka.advance import advance
from penstock.kafka.losses import LossLog, LostRange
from penstock.storage import Storage, open_storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "checkpoint"))


def noted(storage: Storage) -> list[tuple[str, int, int]]:
    return [
        (loss.records.partition, loss.records.start_offset, loss.records.end_offset)
        for loss in read_losses(storage, source_folder("clicks"))
    ]


def test_only_what_no_entry_has_is_noted(storage: Storage) -> None:
    """By tasks that run again and find more of a range lost, and by drivers after a crash."""
    log = LossLog(storage, "clicks")
    for start, end in ((10, 20), (10, 20), (5, 25), (12, 15), (30, 30), (30, 30)):
        log.add([LostRange("t/0", start, end, "retention")])
    assert noted(storage) == [
        ("t-0", 5, 10),
        ("t-0", 10, 20),
        ("t-0", 20, 25),
        ("t-0", 30, 30),
    ]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("steps", range(3))
def test_a_loss_is_noted_once_over_crashes(storage: Storage, policy: Any, steps: int) -> None:
    """Killed after so many of: entry of partition 0, entry of partition 1, offsets/N."""
    start, begins = {"t/0": 5, "t/1": 5}, {"t/0": 8, "t/1": 7}
    log = LossLog(storage, "clicks")
    first = advance(start, begins, {"t/0": 10, "t/1": 10}, policy, log.read())
    log.add(first.losses[:steps])
    # The next run plans the batch again, and retention went on.
    log = LossLog(storage, "clicks")
    again = advance(start, {**begins, "t/0": 9}, {"t/0": 11, "t/1": 10}, policy, log.read())
    log.add(again.losses)
    lost = {part: set() for part in ("t-0", "t-1")}  # type: dict[str, set[int]]
    for part, begin, end in noted(storage):
        assert not lost[part] & {*range(begin, end)}
        lost[part] |= {*range(begin, end)}
    for name, part in (("t/0", "t-0"), ("t/1", "t-1")):
        assert lost[part] == {*range(5, again.starts[name])}
