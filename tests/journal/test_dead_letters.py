"""Staged files and how they become dead letters: once each, whoever collects, and however often."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timezone

import pytest

from penstock.errors import ConfigError, DamagedBlockError, PenstockError
from penstock.journal import JournalStream, RecordFormat, commit_consumer, retire
from penstock.journal.bad_records.dead_letters import (
    DeadLetter,
    collect,
    create_dead_letters,
    dead_letter_stream,
    last_writer,
    open_dead_letters,
    source_stream,
    stage_dead_letters,
    staged_files,
)
from penstock.journal.epochs import publish_seal
from penstock.model import OffsetRange
from penstock.storage import Storage
from tests.journal.helpers import read_all, write_blocks
from tests.storage.faulty_storage import FaultyStorage, Operation

WRITER = "r0-00000000"


@pytest.fixture
def dead(stream: JournalStream) -> JournalStream:
    write_blocks(stream, [["a"] * 100, ["b"] * 100, ["c"] * 100])
    return create_dead_letters(stream)


def letter(offset: int) -> DeadLetter:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return DeadLetter(b"raw", "ValueError", "bad", WRITER, offset, now, 1)


def find(dead: JournalStream, start: int, *offsets: int) -> None:
    cell = OffsetRange(WRITER, start, start + 100)
    stage_dead_letters(dead, cell, [letter(offset) for offset in offsets])


def offsets(dead: JournalStream) -> list[int]:
    return [found["offset"] for found in read_all(dead)]


def test_staged_files_become_one_block(stream: JournalStream, dead: JournalStream) -> None:
    find(dead, 0, 3, 7)
    find(dead, 100, 150)
    assert offsets(dead) == []
    assert collect(stream, dead) == 3
    assert offsets(dead) == [3, 7, 150]
    assert len(dead.blocks(last_writer(dead)[0])) == 1
    assert collect(stream, dead) == 0


def test_a_cell_found_again_counts_once(stream: JournalStream, dead: JournalStream) -> None:
    find(dead, 0, 3)
    find(dead, 0, 3)
    collect(stream, dead)
    find(dead, 0, 3)
    assert collect(stream, dead) == 0
    find(dead, 100, 120)  # after another block, too
    collect(stream, dead)
    find(dead, 0, 3)
    assert collect(stream, dead) == 0
    assert offsets(dead) == [3, 120]


def test_what_another_parser_refuses_is_not_hidden(
    stream: JournalStream, dead: JournalStream
) -> None:
    find(dead, 0, 3)
    collect(stream, dead)
    find(dead, 0, 5)
    collect(stream, dead)
    assert offsets(dead) == [3, 5]


def test_a_emptied_file_keeps_its_name_until_its_records_are_retired(
    stream: JournalStream, dead: JournalStream, storage: Storage
) -> None:
    find(dead, 0, 3)
    find(dead, 100, 150)
    collect(stream, dead)
    commit_consumer(stream, "job", {WRITER: 100})
    retire(stream)
    find(dead, 200, 250)
    collect(stream, dead)
    left = [entry.name for entry in storage.list("lines-dead/findings")]
    assert [name.split(".")[1][:20] for name in left] == [f"{100:020d}", f"{200:020d}"]


def test_letters_go_on_in_the_next_epoch_after_a_seal(
    stream: JournalStream, dead: JournalStream
) -> None:
    find(dead, 0, 3)
    collect(stream, dead)
    publish_seal(dead, *last_writer(dead))
    find(dead, 100, 150)
    collect(stream, dead)
    assert [str(writer) for writer in dead.writers()] == ["dead-00000000", "dead-00000001"]
    assert offsets(dead) == [3, 150]


@pytest.mark.parametrize("step", range(14))
def test_a_collector_overtaken_at_any_step_leaves_each_letter_once(
    stream: JournalStream, dead: JournalStream, storage: Storage, step: int
) -> None:
    find(dead, 0, 3)
    collect(stream, dead)
    find(dead, 100, 150)
    slow = FaultyStorage(storage)
    steps = 0

    def overtake(_: Operation) -> None:
        nonlocal steps
        steps += 1
        if steps == step + 1:
            find(dead, 0, 5)
            collect(stream, dead)
            find(dead, 200, 250)

    slow.before = overtake
    collect(stream, JournalStream(slow, dead.name, dead.format))
    collect(stream, dead)
    assert sorted(offsets(dead)) == ([3, 5, 150, 250] if steps > step else [3, 150])


def test_a_collector_that_fails_at_any_step_can_be_repeated(
    stream: JournalStream, dead: JournalStream, storage: Storage
) -> None:
    found: list[int] = []
    for step in itertools.count():
        find(dead, 0, step)
        find(dead, 100, 100 + step)
        found += [step, 100 + step]
        faulty = FaultyStorage(storage, before=_fail_at(step))
        try:
            collect(stream, JournalStream(faulty, dead.name, dead.format))
        except PenstockError:
            collect(stream, dead)
            assert offsets(dead) == found
        else:
            break
    assert step > 8


def _fail_at(step: int) -> Callable[[Operation], None]:
    steps = itertools.count()

    def fail(_: Operation) -> None:
        if next(steps) == step:
            raise PenstockError("cut off")

    return fail


def test_a_damaged_staged_file_is_named_and_nothing_is_lost(
    stream: JournalStream, dead: JournalStream, storage: Storage
) -> None:
    find(dead, 0, 3)
    (name,) = staged_files(dead)
    path = f"lines-dead/findings/{name}"
    sound = storage.read(path)
    storage.create(path, sound[:-9], overwrite=True)
    with pytest.raises(DamagedBlockError, match="deleting it discards its dead letters"):
        collect(stream, dead)
    storage.create(path, sound, overwrite=True)
    assert collect(stream, dead) == 1


def test_names(stream: JournalStream, storage: Storage) -> None:
    assert source_stream(dead_letter_stream("a-dead")) == "a-dead"
    for wrong in ("clicks", "-dead"):
        with pytest.raises(ConfigError, match="not a stream of dead letters"):
            source_stream(wrong)
    JournalStream.create(storage, "x-dead", RecordFormat("string"))
    with pytest.raises(ConfigError, match="not dead letters"):
        open_dead_letters(storage, "x-dead")
