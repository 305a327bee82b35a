"""SIGKILL at each changing system call of finding, collecting, replaying and giving up; then again.

Each step is taken by a process that is killed there, and after it, whole, by this one: what is left
must be what a single whole one leaves.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from penstock.journal import JournalStream, RecordFormat, verify_stream
from penstock.journal.bad_records.dead_letters import (
    DeadLetter,
    collect,
    create_dead_letters,
    open_dead_letters,
    stage_dead_letters,
)
from penstock.journal.bad_records.replay import letters_to_replay, replay
from penstock.journal.losses.loss_log import read_losses
from penstock.journal.losses.skip import skip
from penstock.model import OffsetRange
from penstock.storage import open_storage
from tests.journal.helpers import path_of, read_all, write_blocks
from tests.strace import needs_strace, traced

pytestmark = [pytest.mark.slow, needs_strace]

WRITER = "r0-00000000"
RECORDS = [["a", "b"], ["c"], ["d"]]
CALLS = ("mkdir", "fsync", "link", "unlink", "rename")
"""What is not synced, as after a write, is as good as not written."""


def prepare(place: Path) -> None:
    """A stream with a damaged block, one collected dead letter and one that waits."""
    stream = JournalStream.create(open_storage(place), "lines", RecordFormat("string"))
    writer = write_blocks(stream, RECORDS)
    dead = create_dead_letters(stream)
    find(dead, 0)
    collect(stream, dead)
    find(dead, 1, attempts=2)
    block = place / path_of(stream, writer, 2)
    block.write_bytes(block.read_bytes()[:-1])


def find(dead: JournalStream, *offsets: int, attempts: int = 1) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    letters = [DeadLetter(b"raw", "E", "bad", WRITER, at, now, attempts) for at in offsets]
    stage_dead_letters(dead, OffsetRange(WRITER, min(offsets), max(offsets) + 1), letters)


def streams(place: str | Path) -> tuple[JournalStream, JournalStream]:
    journal = open_storage(place)
    return JournalStream.open(journal, "lines"), open_dead_letters(journal, "lines-dead")


def find_and_collect(place: str | Path) -> None:
    stream, dead = streams(place)
    find(dead, 3)
    collect(stream, dead)


def feed_back(place: str | Path) -> None:
    stream, dead = streams(place)
    replay(dead, stream)


def give_up(place: str | Path) -> None:
    stream, _ = streams(place)
    skip(stream, OffsetRange(WRITER, 2, 3), "torn")


def all_found(place: Path) -> None:
    _, dead = streams(place)
    letters = [at for table in letters_to_replay(dead) for at in table["offset"].to_pylist()]
    assert sorted(letters) == [0, 1, 3]


def all_fed_back(place: Path) -> None:
    stream, dead = streams(place)
    assert list(letters_to_replay(dead)) == []
    assert all(len(dead.blocks(writer)) == 1 for writer in dead.writers())  # the seals
    skip(stream, OffsetRange(WRITER, 2, 3), "torn")
    assert read_all(stream) == ["a", "b", "d", "raw", "raw"]


def all_given_up(place: Path) -> None:
    stream, _ = streams(place)
    (loss,) = read_losses(stream.storage, stream.name)
    assert loss.records == OffsetRange(WRITER, 2, 3)
    assert read_all(stream) == ["a", "b", "d"]
    assert all(verdict.error is None or verdict.skipped for verdict in verify_stream(stream))


STEPS: dict[str, tuple[Callable[[str | Path], None], Callable[[Path], None]]] = {
    "find": (find_and_collect, all_found),
    "replay": (feed_back, all_fed_back),
    "skip": (give_up, all_given_up),
}


def ready(place: str, step: str) -> Callable[[], object]:
    take, _ = STEPS[step]
    return lambda: take(place)


def kills(prepared: Path, step: str, log: Path) -> Iterator[str]:
    """Take a step, and yield what makes strace kill at each changing call of any thread of it."""
    whole = prepared.with_name("whole")
    shutil.copytree(prepared, whole)
    assert traced(ready, (str(whole), step), log, threads=True) == 0
    calls = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text(), re.MULTILINE))
    for call in CALLS:
        most = max((count for (_, name), count in calls.items() if name == call), default=0)
        for nth in range(1, most + 1):
            yield f"{call}:signal=SIGKILL:when={nth}"


@pytest.mark.storm
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_system_call_and_taken_again(tmp_path: Path, step: str) -> None:
    prepared = tmp_path / "prepared"
    prepare(prepared)
    take, check = STEPS[step]
    points = list(kills(prepared, step, tmp_path / "log"))
    assert len(points) > 8
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(ready, (str(place), step), os.devnull, point, threads=True) == -signal.SIGKILL
        take(place)
        check(place)
        shutil.rmtree(place)
