"""Two drivers alive over the same receivers, as when a lock is out of reach: the later has them.

The trackers of two drivers share a SparkContext here; what they say to each other and to receivers
goes by files, as between machines.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.driver.feed import ReceiverFeed
from penstock.driver.tracker import ReceiverTracker
from penstock.errors import FencedError
from penstock.journal import JournalStream, RecordFormat
from penstock.rate import ReceiveLimit
from penstock.receivers import (
    Command,
    Receiver,
    Status,
    TailReceiver,
    claim_run,
    newest_run,
    read_status,
)
from penstock.storage import open_storage
from penstock.streaming.core.listener import ListenerBus
from penstock.streaming.engine.receiver_events import ReceiverEvents
from tests.journal.helpers import read_all
from tests.receivers.supervised import HASTY, newest_command, override
from tests.streaming.settings import spark_silent
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark

LIMIT = ReceiveLimit(None)
SLOW = ReceiveLimit(0.01)


class Place:
    """A log, the journal that it is followed into, and drivers that do so."""

    def __init__(self, sc: SparkContext, root: Path, stack: ExitStack) -> None:
        self.sc = sc
        self.log = root / "app.log"
        self.log.touch()
        self.lines: list[str] = []
        self._stack = stack
        storage = open_storage(root / "journal")
        self.stream = JournalStream.create(storage, "lines", RecordFormat("string"))

    def driver(
        self, receiver: Receiver | None = None
    ) -> tuple[ReceiverTracker, list[BaseException]]:
        """Start a driver's tracker; return it, and the errors it ends the program with."""
        errors: list[BaseException] = []
        source = receiver or TailReceiver(str(self.log))
        feed = ReceiverFeed({"r0": source}, self.stream)
        events = ReceiverEvents(ListenerBus(), HASTY.poll_ms, {"lines": 0})
        tracker = ReceiverTracker(self.sc, [feed], HASTY, events, errors.append, lambda name: LIMIT)
        self._stack.callback(tracker.stop, 20.0)
        tracker.start()
        return tracker, errors

    def status(self) -> Status | None:
        return read_status(self.stream, "r0")

    def receives(self, run: str | None = None) -> bool:
        """Append lines until the receiver, if asked for that of a run, has stored them."""
        self.lines += [uuid.uuid4().hex for _ in range(3)]
        with self.log.open("a") as file:
            file.writelines(f"{line}\n" for line in self.lines[-3:])
        return eventually(lambda: self.all_stored() and self.is_of(run or self.run()))

    def all_stored(self) -> bool:
        return sorted(read_all(self.stream)) == sorted(self.lines)

    def is_of(self, run: str) -> bool:
        status = self.status()
        return status is not None and status.state == "started" and status.run == run

    def run(self) -> str:
        run = newest_run(self.stream, "r0")
        assert run is not None
        return run


@pytest.fixture
def place(sc: SparkContext, tmp_path: Path) -> Iterator[Place]:
    with spark_silent(sc), ExitStack() as stack:
        yield Place(sc, tmp_path, stack)


def limit_in_vain(tracker: ReceiverTracker) -> None:
    with pytest.raises(FencedError):
        tracker.limit("lines", SLOW)


OUTGOING: dict[str, Callable[[ReceiverTracker], object]] = {
    "stops": lambda tracker: tracker.stop(20.0),
    "limits": limit_in_vain,
}


@pytest.mark.parametrize("act", OUTGOING.values(), ids=OUTGOING.keys())
def test_an_outgoing_driver_leaves_its_successors_receivers_alone(
    place: Place, act: Callable[[ReceiverTracker], object]
) -> None:
    first, first_errors = place.driver()
    assert place.receives()
    _, second_errors = place.driver()
    run = place.run()
    assert place.receives(run)
    assert eventually(lambda: bool(first_errors))
    assert isinstance(first_errors[0], FencedError)
    act(first)
    assert place.receives(run)
    assert (place.run(), second_errors) == (run, [])
    assert newest_command(place.stream, "r0") == Command()


def test_the_later_driver_has_them_although_the_earlier_one_starts_its_own_again(
    place: Place,
) -> None:
    """What the earlier driver's attempts do before they see the later run ends by itself."""
    place.driver()
    assert place.receives()
    _, errors = place.driver()
    for _ in range(3):
        claimed = len(place.stream.writers())
        assert place.receives(place.run())
    assert len(place.stream.writers()) == claimed
    assert errors == []


@pytest.mark.parametrize("by", ["its own command file", "a run that did not start"])
def test_a_receiver_that_ended_unwanted_is_started_again_or_the_driver_ends(
    place: Place, by: str
) -> None:
    _, errors = place.driver()
    assert place.receives()
    if by == "its own command file":
        override(place.stream, "r0", Command(stop=True))
        assert eventually(lambda: len(place.stream.writers()) == 2)
        assert place.receives()
        assert errors == []
    else:
        claim_run(place.stream, "r0", "f" * 32, Command(stop=True))
        assert eventually(lambda: bool(errors))
        assert "a later run took this receiver over" in str(errors[0])


class Once(Receiver):
    """Is done at once."""

    def onStart(self) -> None:
        self.store(["all there is"])
        self.stop("done")

    def onStop(self) -> None:
        pass


def test_a_receiver_that_asked_for_its_end_is_not_started_again(place: Place) -> None:
    tracker, errors = place.driver(Once())

    def is_done() -> bool:
        status = place.status()
        return status is not None and status.state == "stopped"

    assert eventually(is_done)
    (runner,) = tracker._runners["lines"]
    assert runner.join(WAIT_S)
    assert read_all(place.stream) == ["all there is"]
    assert errors == []
