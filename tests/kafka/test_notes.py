"""What a direct stream keeps in the checkpoint location: lost ranges, and ids of topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConcurrentDriverError, KafkaError, LogFormatError, StorageError
from penstock.journal.losses.loss_log import read_losses, source_folder
from penstock.kafka.advance import advance
from penstock.kafka.generations import Generations
from penstock.kafka.losses import LossLog, LostRange
from penstock.storage import Storage, open_storage
from tests.storage.faulty_storage import FaultyStorage


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


def test_topics_that_are_created_anew_are_counted(storage: Storage) -> None:
    generations = Generations(storage, "clicks")
    assert generations.observe({"a": "id-1", "b": None}) == {"a": 0, "b": 0}
    assert generations.observe({"a": "id-1"}) == {"a": 0}
    assert generations.observe({"a": "id-2", "c": "id-3"}) == {"a": 1, "c": 0}
    again = Generations(storage, "clicks")
    assert again.observe({"a": "id-2", "b": "id-4", "c": "id-3"}) == {"a": 1, "b": 0, "c": 0}
    assert again.observe({"a": None}) == {"a": 1}
    assert again.observe({"a": "id-5"}) == {"a": 2}


def test_an_answer_of_a_broker_that_is_behind_is_refused(storage: Storage) -> None:
    generations = Generations(storage, "clicks")
    generations.observe({"a": "id-1"})
    generations.observe({"a": "id-2"})
    with pytest.raises(KafkaError, match=r"as it was before it was recreated.*same metadata"):
        generations.observe({"a": "id-1", "b": "id-3"})
    assert generations.observe({"a": "id-2", "b": "id-3"}) == {"a": 1, "b": 0}


def test_of_two_drivers_one_notes_what_is_anew(storage: Storage) -> None:
    one, other = Generations(storage, "clicks"), Generations(storage, "clicks")
    assert one.observe({"a": "id-1"}) == other.observe({"a": "id-1"})
    one.observe({"a": "id-2"})
    with pytest.raises(ConcurrentDriverError, match="another driver noted other ids"):
        other.observe({"a": "id-3"})


def test_ids_whose_answer_was_lost_are_noted_again(storage: Storage) -> None:
    faulty = FaultyStorage(storage)
    generations = Generations(faulty, "clicks")
    faulty.fail("create", after=True)
    with pytest.raises(StorageError):
        generations.observe({"a": "id-1"})
    assert generations.observe({"a": "id-1"}) == {"a": 0}


def test_damaged_ids_are_an_error(storage: Storage) -> None:
    Generations(storage, "clicks").observe({"a": "id-1"})
    storage.create("sources/clicks/topics/0.json", b"{", overwrite=True)
    with pytest.raises(LogFormatError, match=r"ids of the topics cannot be read.*restore the file"):
        Generations(storage, "clicks")
