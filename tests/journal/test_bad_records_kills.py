"""SIGKILL at each changing system call of storing dead letters, replaying and skipping; then again.

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
from penstock.journal.bad_records.dead_letters import DeadLetter, DeadLetterFolder
from penstock.journal.bad_records.replay import replay
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
    """A stream with a damaged block and two dead letters."""
    stream = JournalStream.create(open_storage(place), "lines", RecordFormat("string"))
    writer = write_blocks(stream, RECORDS)
    dead = DeadLetterFolder.create(stream.storage, stream.name)
    find(dead, 0)
    find(dead, 1)
    block = place / path_of(stream, writer, 2)
    block.write_bytes(block.read_bytes()[:-1])


def find(dead: DeadLetterFolder, offset: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    letter = DeadLetter(b"raw", "E", "bad", WRITER, offset, now)
    dead.store(OffsetRange(WRITER, offset, offset + 1), [letter])


def streams(place: str | Path) -> tuple[JournalStream, DeadLetterFolder]:
    journal = open_storage(place)
    return JournalStream.open(journal, "lines"), DeadLetterFolder(journal, "lines")


def find_one(place: str | Path) -> None:
    _, dead = streams(place)
    find(dead, 3)


def feed_back(place: str | Path) -> None:
    stream, dead = streams(place)
    replay(dead, stream)


def give_up(place: str | Path) -> None:
    stream, _ = streams(place)
    skip(stream, OffsetRange(WRITER, 2, 3), "torn")


def all_found(place: Path) -> None:
    _, dead = streams(place)
    letters = [at for file in dead.waiting() for at in dead.read(file)["offset"].to_pylist()]
    assert letters == [0, 1, 3]


def all_fed_back(place: Path) -> None:
    stream, dead = streams(place)
    assert dead.waiting() == []
    skip(stream, OffsetRange(WRITER, 2, 3), "torn")
    assert read_all(stream) == ["a", "b", "d", "raw", "raw"]


def all_given_up(place: Path) -> None:
    stream, _ = streams(place)
    (loss,) = read_losses(stream.storage, stream.name)
    assert loss.records == OffsetRange(WRITER, 2, 3)
    assert read_all(stream) == ["a", "b", "d"]
    assert all(verdict.error is None or verdict.skipped for verdict in verify_stream(stream))


STEPS: dict[str, tuple[Callable[[str | Path], None], Callable[[Path], None]]] = {
    "find": (find_one, all_found),
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
    assert len(points) > 3
    for number, point in enumerate(points):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(ready, (str(place), step), os.devnull, point, threads=True) == -signal.SIGKILL
        take(place)
        check(place)
        shutil.rmtree(place)
