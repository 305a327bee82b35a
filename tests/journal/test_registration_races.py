"""Registering beside a retirement: whatever comes between what, a new consumer can read on.

Each side is held before each of its storage operations while the other one goes on, for each of
the other one's operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache

import pytest

from penstock.journal import (
    JournalStream,
    commit_consumer,
    retire,
)
from penstock.journal.layout import consumer_path
from penstock.journal.retention.registration import (
    Consumer,
    StartingOffsets,
    register_consumer,
)
from penstock.journal.retention.retirer import Retirer
from tests.journal.helpers import clear_memory, memory_stream, read_after, write_blocks
from tests.journal.interleaving import Side, interleave

SEALED, OPEN = "r0-00000000", "r0-00000001"
PLACES = [{SEALED: 2}, {SEALED: 3, OPEN: 0}, {OPEN: 2}]
"""Where the reader that retires is after each of its batches."""


@cache
def written() -> dict[str, bytes]:
    """The files of a stream with a sealed writer and an open one."""
    stream = memory_stream()
    write_blocks(stream, [["a"], ["b"], ["c"]])
    write_blocks(stream, [["d"], ["e"], ["f"]], close=False)
    folders = (str(writer) for writer in stream.writers())
    paths = (
        f"s/{folder}/{e.name}" for folder in folders for e in stream.storage.list(f"s/{folder}")
    )
    return {path: stream.storage.read(path) for path in paths}


def filled() -> JournalStream:
    """That stream, with a reader that has taken one block."""
    stream = memory_stream()
    for path, content in written().items():
        stream.storage.create(path, content)
    commit_consumer(stream, "plain", {SEALED: 1})
    return stream


def by_retire(stream: JournalStream) -> Side:
    """A plain reader, which commits and then retires."""

    def run(stream: JournalStream) -> None:
        commit_consumer(stream, "plain", PLACES[-1])
        retire(stream)

    return run


def by_batches(stream: JournalStream) -> Side:
    """A program, after its first batches."""
    commit_consumer(stream, "plain", PLACES[-1])
    Retirer(register_consumer(stream, "program", "p")).commit({SEALED: 1}, [])

    def run(stream: JournalStream) -> None:
        retirer = Retirer(register_consumer(stream, "program", "p"))
        for place in PLACES:
            retirer.commit(place, stream.writers())

    return run


def read_on(stream: JournalStream, consumer: Consumer) -> list[str]:
    """Take a first batch, and say so."""
    records, end = read_after(stream, consumer.begin)
    consumer.commit(end)
    return records


@pytest.mark.storm
@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("held", ["registration", "retirement"])
@pytest.mark.parametrize("retiring", [by_retire, by_batches])
def test_a_new_consumer_reads_on_whatever_comes_between(
    retiring: Callable[[JournalStream], Side], held: str, starting: StartingOffsets
) -> None:
    registered: list[Consumer] = []

    def register(stream: JournalStream) -> None:
        registered.append(register_consumer(stream, "new", "n", starting=starting))

    def at(first: int, second: int) -> tuple[bool, bool]:
        stream = filled()
        sides = [register, retiring(stream)]
        if held == "retirement":
            sides.reverse()
        were_held = interleave(stream, sides[0], first, sides[1], second)
        retire(stream)  # what comes after it keeps to what is registered
        records = read_on(stream, registered[-1])
        assert records == list("abcdef"[6 - len(records) :]), f"{first}, {second}: {records}"
        retire(stream)
        assert [len(stream.blocks(writer)) for writer in (SEALED, OPEN)] == [1, 1]
        clear_memory()
        return were_held

    for first in itertools.count():
        for second in itertools.count():
            first_held, second_held = at(first, second)
            if not second_held:
                break
        if not first_held:
            break
    assert first > 5


@pytest.mark.parametrize("held", ["registration", "retirement"])
def test_a_name_that_is_taken_over_is_held_back_like_a_new_one(held: str) -> None:
    """Its predecessor gave free what the successor begins at."""

    def take_over(stream: JournalStream) -> None:
        taken.append(register_consumer(stream, "streaming", "successor", take_over=True))

    taken: list[Consumer] = []
    for first in itertools.count():
        stream = filled()
        register_consumer(stream, "streaming", "predecessor").commit(PLACES[-1])
        sides = [take_over, by_retire(stream)]
        if held == "retirement":
            sides.reverse()
        first_held, _ = interleave(stream, sides[0], first, sides[1], 1000)
        records = read_on(stream, taken[-1])
        assert records == list("abcdef"[6 - len(records) :])
        clear_memory()
        if not first_held:
            break
    assert first > 5


def test_what_nobody_deletes_is_begun_at() -> None:
    stream = filled()
    commit_consumer(stream, "plain", PLACES[-1])
    assert register_consumer(stream, "new", "n").begin == {SEALED: 0, OPEN: 0}


def test_an_announcement_that_was_not_carried_out_is_respected() -> None:
    """Its process may go on at any time, unless its file was removed."""
    stream = filled()
    program = register_consumer(stream, "program", "p")
    program.commit({SEALED: 2}, {SEALED: 2})
    assert register_consumer(stream, "new", "n").begin == {SEALED: 2, OPEN: 0}
    stream.storage.delete(consumer_path(stream.name, "program"))
    assert register_consumer(stream, "later", "l").begin == {SEALED: 0, OPEN: 0}


def test_what_a_killed_retirement_announced_goes_with_the_next_one() -> None:
    stream = filled()
    notice = f"{stream.name}/consumers/0123456789abcdef.retiring"
    stream.storage.create(notice, b'{"retiring":{"r0-00000000":2}}')
    assert register_consumer(stream, "new", "n").begin == {SEALED: 2, OPEN: 0}
    assert retire(stream) == 1
    assert stream.storage.exists(notice)  # not all of it is deleted
    commit_consumer(stream, "plain", {SEALED: 2})
    assert retire(stream) == 1
    assert not stream.storage.exists(notice)
