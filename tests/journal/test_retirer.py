"""Commits and retirement from batch to batch: what they delete, and what they cost."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.errors import LogFormatError, StorageError
from penstock.journal import (
    JournalStream,
    commit_consumer,
    consumers,
    remove_consumer,
    retire,
)
from penstock.journal.layout import WriterId, block_path
from penstock.journal.retention.registration import register_consumer
from penstock.journal.retention.retirer import Retirer
from tests.journal.helpers import memory_stream, write_blocks
from tests.storage.faulty_storage import FaultyStorage

BLOCKS = [["a", "b"], ["c"], ["d", "e", "f"], ["g"]]  # at 0, 2, 3, 6


def starts(stream: JournalStream, writer: WriterId) -> list[int]:
    return [block.start_offset for block in stream.blocks(writer)]


def watched() -> tuple[JournalStream, JournalStream, FaultyStorage]:
    """A stream, and the same one through a storage that records and fails."""
    inner = memory_stream()
    storage = FaultyStorage(inner.storage)
    return inner, JournalStream(storage, inner.name, inner.format), storage


def driver(stream: JournalStream) -> Retirer:
    return Retirer(register_consumer(stream, "driver", "me"))


def test_a_single_consumer_retires_what_it_commits_at_once() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS)
    retirer = driver(stream)
    for committed, left in [(1, [0, 2, 3, 6, 7]), (5, [3, 6, 7]), (7, [7])]:
        retirer.commit({str(writer): committed}, [writer])
        assert starts(stream, writer) == left
        assert consumers(stream) == {"driver": {str(writer): committed}}


def test_it_follows_a_slower_consumer_behind_the_driver() -> None:
    """A writer that the driver left is looked at until the slower one is past it, too."""
    inner, stream, storage = watched()
    first = write_blocks(inner, BLOCKS)
    second = write_blocks(inner, [["h"], ["i"]], close=False)
    commit_consumer(inner, "slow", {})
    retirer = driver(stream)

    def commit() -> int:
        before = len(storage.operations)
        retirer.commit({str(second): 1}, [second])
        done = storage.operations[before:]
        return sum(o.kind == "list" and o.path.endswith(str(first)) for o in done)

    commit()
    assert starts(inner, first) == [0, 2, 3, 6, 7]
    assert commit() == 0  # nobody has moved: nothing is listed
    commit_consumer(inner, "slow", {str(first): 3})
    assert commit() == 0  # that it moved is seen now, and announced at the next commit
    assert commit() == 1
    assert starts(inner, first) == [3, 6, 7]
    commit_consumer(inner, "slow", {str(second): 1})
    commit()
    commit()
    assert starts(inner, first) == [7]
    assert starts(inner, second) == [1]
    assert commit() == 0


def test_the_slower_one_retires_at_its_own_commit() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=False)
    fast, slow = (Retirer(register_consumer(stream, name, name)) for name in ("fast", "slow"))
    slow.commit({str(writer): 0}, [writer])
    fast.commit({str(writer): 7}, [writer])
    slow.commit({str(writer): 3}, [writer])
    slow.commit({str(writer): 6}, [writer])
    assert starts(stream, writer) == [6]


def test_it_sweeps_at_first() -> None:
    stream = memory_stream()
    first = write_blocks(stream, BLOCKS)
    second = write_blocks(stream, [["h"]], close=False)
    driver(stream).commit({str(second): 1}, [second])
    assert starts(stream, first) == [7]


def test_one_durable_file_a_batch_and_one_look() -> None:
    """What announces the retirement is written with the commit."""
    inner, stream, storage = watched()
    writer = write_blocks(inner, BLOCKS, close=False)
    retirer = driver(stream)
    retirer.commit({str(writer): 2}, [writer])
    storage.operations.clear()
    retirer.commit({str(writer): 3}, [writer])
    kinds = Counter(operation.kind for operation in storage.operations)
    assert kinds == {"list": 2, "create": 1, "delete": 1}


def test_a_commit_that_says_nothing_new_is_not_written_but_by_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner, stream, storage = watched()
    writer = write_blocks(inner, BLOCKS, close=False)

    def creates(times: int) -> int:
        retirer = Retirer(register_consumer(stream, "driver", "me", location="file:///there"))
        before = len(storage.operations)
        for _ in range(times):
            retirer.commit({str(writer): 0}, [writer])
        return sum(done.kind == "create" for done in storage.operations[before:])

    assert creates(3) == 1
    assert creates(3) == 0
    monkeypatch.setattr("os.getpid", lambda: 12345)
    assert creates(3) == 1


@pytest.mark.parametrize("kind", ["create", "list", "read", "delete"])
def test_after_a_failed_step_the_next_commit_goes_on(kind: str) -> None:
    inner, stream, storage = watched()
    writer = write_blocks(inner, BLOCKS, close=False)
    commit_consumer(inner, "slow", {str(writer): 7})
    retirer = driver(stream)
    storage.fail(kind)  # type: ignore[arg-type]
    with pytest.raises(StorageError):
        retirer.commit({str(writer): 6}, [writer])
    retirer.commit({str(writer): 6}, [writer])
    assert starts(inner, writer) == [6]


def test_after_a_failed_step_another_writer_is_not_forgotten() -> None:
    inner, stream, storage = watched()
    first = write_blocks(inner, BLOCKS)
    retirer = driver(stream)
    retirer.commit({str(first): 0}, [])
    second = write_blocks(inner, [["h"]], close=False)
    third = write_blocks(inner, [["i"]], close=False)
    storage.fail("delete")
    with pytest.raises(StorageError):
        retirer.commit({str(third): 0}, [first, second, third])
    retirer.commit({str(third): 1}, [third])
    assert (starts(inner, first), starts(inner, second)) == ([7], [1])


def test_a_consumer_that_was_removed_retires_nothing_until_it_is_back() -> None:
    inner, stream, storage = watched()
    writer = write_blocks(inner, BLOCKS, close=False)
    retirer = driver(stream)
    commit_consumer(inner, "other", {str(writer): 7})

    def remove(operation: object) -> None:
        if getattr(operation, "kind", "") == "list" and "driver" in consumers(inner):
            remove_consumer(inner, "driver")

    storage.before = remove
    retirer.commit({str(writer): 6}, [writer])
    assert starts(inner, writer) == [0, 2, 3, 6]
    storage.before = None
    retirer.commit({str(writer): 6}, [writer])
    assert starts(inner, writer) == [6]


def test_a_damaged_consumer_file_stops_it() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=False)
    retirer = driver(stream)
    stream.storage.create("s/consumers/slow.json", b"{")
    with pytest.raises(LogFormatError, match="file cannot be read"):
        retirer.commit({str(writer): 6}, [writer])
    assert starts(stream, writer) == [0, 2, 3, 6]


def test_what_is_retained_stays_although_it_is_committed() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=False)
    retirer = driver(stream)
    name = str(writer)
    for committed, retained, left in [(3, 0, [0, 2, 3, 6]), (6, 3, [3, 6]), (7, 6, [6])]:
        retirer.commit({name: committed}, [writer], {name: retained})
        assert starts(stream, writer) == left
        assert consumers(stream) == {"driver": {name: committed}}
    assert retire(stream) == 0


def test_another_consumer_retires_nothing_that_is_retained() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, BLOCKS, close=False)
    driver(stream).commit({str(writer): 6}, [writer], {str(writer): 2})
    other = Retirer(register_consumer(stream, "other", "other"))
    other.commit({str(writer): 7}, [writer])
    assert retire(stream) == 0
    assert starts(stream, writer) == [2, 3, 6]


def test_after_many_epochs_a_start_costs_what_it_cost_before() -> None:
    """Of epochs that hold nothing but a seal a driver and a new consumer list none."""
    inner, stream, storage = watched()

    def start(epoch: int) -> list[int]:
        """Commit twice, and return what a start of each costs then."""
        latest = WriterId("r0", epoch)
        retirer = driver(inner)
        for _ in range(2):
            retirer.commit({str(latest): 0}, [latest])
        costs = []
        for begin in (
            lambda: driver(stream).commit({str(latest): 0}, [latest]),
            lambda: register_consumer(stream, f"new-{epoch}", "n"),
        ):
            storage.operations.clear()
            begin()
            costs.append(len(storage.operations))
        remove_consumer(inner, f"new-{epoch}")
        return costs

    for _ in range(3):
        write_blocks(inner, [])
    before = start(2)
    seal = inner.storage.read(block_path("s", WriterId("r0", 0), 0))
    for epoch in range(3, 300):
        inner.storage.create(block_path("s", WriterId("r0", epoch), 0), seal)
    assert start(299) == before
