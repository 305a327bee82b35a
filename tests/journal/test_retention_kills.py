"""SIGKILL at each changing system call of registering, committing and retiring; then again."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.journal import (
    JournalStream,
    RecordFormat,
    StreamProgress,
    advance,
    commit_consumer,
    ranges_between,
    read_records,
    remove_consumer,
    retire,
)
from penstock.journal.retention.registration import register_consumer
from penstock.journal.retention.retirer import Retirer
from penstock.storage import open_storage
from tests.journal.helpers import write_blocks
from tests.strace import kill_points, needs_strace, traced

pytestmark = [pytest.mark.slow, needs_strace]

SEALED, OPEN = "r0-00000000", "r0-00000001"
CHANGES = re.compile(r"(mkdir|fsync|link|unlink|rename)")


def prepare(place: Path) -> None:
    """A plain reader has taken a block and a half of two writers' three; a program, two blocks."""
    stream = JournalStream.create(open_storage(place), "lines", RecordFormat("string"))
    write_blocks(stream, [["a"], ["b"], ["c"]])
    write_blocks(stream, [["d"], ["e"], ["f"]], close=False)
    register_consumer(stream, "program", "p")
    commit_consumer(stream, "plain", {OPEN: 1})


def opened(place: str | Path) -> JournalStream:
    return JournalStream.open(open_storage(place), "lines")


def register(place: str | Path) -> None:
    register_consumer(opened(place), "new", "n")


def take_batches(place: str | Path) -> None:
    stream = opened(place)
    retirer = Retirer(register_consumer(stream, "program", "p"))
    for offsets in ({SEALED: 2}, {OPEN: 1}):
        retirer.commit(offsets, stream.writers())


def sweep(place: str | Path) -> None:
    stream = opened(place)
    commit_consumer(stream, "program", {OPEN: 1})
    retire(stream)


def take_batches_and_retain(place: str | Path) -> None:
    stream = opened(place)
    retirer = Retirer(register_consumer(stream, "program", "p"))
    for offsets, retained in (({SEALED: 2}, {}), ({OPEN: 1}, {SEALED: 2})):
        retirer.commit(offsets, stream.writers(), retained)


STEPS: dict[str, tuple[Callable[[str | Path], None], str]] = {
    "register": (register, "abcdef"),
    "take batches": (take_batches, "ef"),
    "take batches and retain": (take_batches_and_retain, "cdef"),
    "sweep": (sweep, "ef"),
}
"""What is done, and what a consumer that is new after it reads."""


def ready(place: str, step: str) -> Callable[[], object]:
    return lambda: STEPS[step][0](place)


def check(place: Path, expected: str) -> None:
    stream = opened(place)
    held = "".join(read_from_new_consumer(stream, "checker"))
    assert held == expected
    commit_consumer(stream, "program", {OPEN: 1})
    retire(stream)
    names = [entry.name for entry in stream.storage.list("lines/consumers")]
    assert not any(name.endswith(".retiring") for name in names)
    assert "".join(read_from_new_consumer(stream, "checker")) == expected


def read_from_new_consumer(stream: JournalStream, name: str) -> list[str]:
    begin = register_consumer(stream, name, name).begin
    return list(
        read_records(
            stream, ranges_between(begin, advance(begin, StreamProgress(stream).ends(begin)))
        )
    )


@pytest.mark.storm
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_system_call_and_taken_again(tmp_path: Path, step: str) -> None:
    prepared = tmp_path / "prepared"
    prepare(prepared)
    whole = tmp_path / "whole"
    shutil.copytree(prepared, whole)
    take, expected = STEPS[step]
    for number, point in enumerate(kill_points(ready, (str(whole), step), tmp_path / "l", CHANGES)):
        place = tmp_path / str(number)
        shutil.copytree(prepared, place)
        assert traced(ready, (str(place), step), os.devnull, point) == -signal.SIGKILL
        read_from_new_consumer(opened(place), "between")  # what is left is whole for a new one, too
        remove_consumer(opened(place), "between")
        take(place)
        check(place, expected)
        shutil.rmtree(place)
