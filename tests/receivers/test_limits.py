"""The supervisor holds receivers to their command's rate, on every way to store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.journal import JournalStream, RecordFormat
from penstock.receivers import Command, Receiver, give_command
from penstock.storage import open_storage
from tests.journal.helpers import read_all
from tests.receivers.supervised import RUN, commanded
from tests.waiting import WAIT_S, eventually

SLOW = Command(rate=0.01)
"""One record in 100 s: what is let through, is let through at once."""


class Storing(Receiver):
    """Stores in a thread of its own, as receivers do, or leaves that to the test."""

    def __init__(self, store: Callable[[Receiver], object]) -> None:
        self.started = threading.Event()
        self.stored = threading.Event()
        self._store = store
        self._thread = threading.Thread(target=self._run)

    def onStart(self) -> None:
        self._thread.start()
        self.started.set()

    def onStop(self) -> None:
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        self._store(self)
        self.stored.set()


@pytest.fixture
def stream(tmp_path: Path) -> JournalStream:
    storage = open_storage(tmp_path / "journal")
    return JournalStream.create(storage, "clicks", RecordFormat("string"))


@contextmanager
def running(
    stream: JournalStream,
    command: Command,
    store: Callable[[Receiver], object] = lambda receiver: None,
) -> Iterator[Storing]:
    """Run a receiver under a command; in the end command it to stop."""
    receiver = Storing(store)
    with commanded(stream, receiver, command) as raised:
        assert receiver.started.wait(WAIT_S)
        yield receiver
    assert not raised, raised


def batch(*records: str) -> pa.RecordBatch:
    return pa.record_batch([pa.array(records)], names=["value"])


WAYS: dict[str, Callable[[Receiver], object]] = {
    "single": lambda receiver: [receiver.store(text) for text in "ab"],
    "list": lambda receiver: [receiver.store([text]) for text in "ab"],
    "generator": lambda receiver: [receiver.store(iter([text])) for text in "ab"],
    "RecordBatch": lambda receiver: receiver.store(batch("a", "b")),
    "Table": lambda receiver: receiver.store(pa.Table.from_batches([batch("a", "b")])),
    "with positions": lambda receiver: [
        receiver.store(batch(text), position=text) for text in "ab"
    ],
    "several ways": lambda receiver: (receiver.store("a"), receiver.store(["b"])),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_store_is_charged(stream: JournalStream, way: str) -> None:
    with running(stream, SLOW, WAYS[way]) as receiver:
        assert eventually(lambda: read_all(stream) == ["a"])
        assert not receiver.stored.wait(0.1)
    # Once it is stopped, what the receiver holds goes through: its source may not have it any more.
    assert receiver.stored.is_set()
    assert read_all(stream) == ["a", "b"]


def test_a_store_with_a_position_is_not_divided(stream: JournalStream) -> None:
    with running(stream, SLOW) as receiver:
        receiver.store(batch("a", "b", "c"), position=3)
        assert receiver.tryStore("d") > 0
    assert read_all(stream) == ["a", "b", "c"]


def test_the_ack_of_a_divided_store_comes_last(stream: JournalStream) -> None:
    acked: list[int] = []
    with running(stream, Command(rate=1000.0)) as receiver:  # 20 records a block interval
        records = batch(*map(str, range(100)))
        began_s = time.monotonic()
        receiver.store(records, ack=lambda: acked.append(len(read_all(stream))))
        assert (
            time.monotonic() - began_s >= 0.07
        )  # all but one block interval's worth is waited for
        assert eventually(lambda: bool(acked))
    assert acked == [100]


def test_an_empty_store_is_acked_in_its_turn(stream: JournalStream) -> None:
    acked: list[Any] = []
    with running(stream, SLOW) as receiver:
        receiver.store(batch("a"))
        receiver.store(batch(), ack=lambda: acked.append("empty"))
        receiver.store([], ack=lambda: acked.append("list"))
        assert eventually(lambda: acked == ["empty", "list"])


def test_a_store_that_may_not_wait(stream: JournalStream) -> None:
    with running(stream, SLOW) as receiver:
        # as a whole, and paid for afterwards
        assert eventually(lambda: receiver.tryStore(["a", "b"]) == 0)
        assert receiver.tryStore("c") > 100_000
        assert receiver.tryStore(iter(["c", "d"])) > 100_000
    assert read_all(stream) == ["a", "b"]


def test_a_pause_and_a_new_rate_are_felt_within_a_poll(stream: JournalStream) -> None:
    with running(stream, Command(paused=True)) as receiver:
        assert receiver.tryStore("a") > 0
        give_command(stream, "r0", RUN, Command())
        assert eventually(lambda: receiver.tryStore("a") == 0)
        give_command(stream, "r0", RUN, SLOW)
        assert eventually(lambda: receiver.tryStore("more") > 0)


def test_the_last_rate_stays_when_the_driver_is_gone(stream: JournalStream) -> None:
    """No driver writes commands any more, and the last one stays effective."""
    with running(stream, SLOW) as receiver:
        assert eventually(lambda: receiver.tryStore("a") == 0)
        assert not eventually(lambda: receiver.tryStore("b") == 0, within_s=0.2)
