"""Commands by files: the latest run's stand, whatever an earlier one does; unknown keys, damage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from penstock.errors import FencedError, LogFormatError, StorageError
from penstock.journal import JournalStream, RecordFormat
from penstock.patience import STORAGE_PATIENCE_S
from penstock.receivers import (
    Command,
    SocketReceiver,
    Status,
    claim_run,
    give_command,
    newest_run,
    read_command,
    read_status,
)
from penstock.receivers.supervisor.events import Event
from penstock.receivers.supervisor.status import StatusReport
from penstock.receivers.supervisor.watch import Watch
from penstock.receivers.task import ReceiverTask
from penstock.storage import open_storage
from penstock.storage.base import temporary_name
from tests.journal.helpers import clear_memory, memory_stream
from tests.journal.interleaving import interleave
from tests.receivers.supervised import HASTY, newest_command
from tests.storage.faulty_storage import FaultyStorage, OperationKind

RATE = Command(rate=7.0)
Act = Callable[[JournalStream, str], object]
GIVEN: dict[str, tuple[Act, Command]] = {
    "a rate": (lambda s, run: give_command(s, "r0", run, Command(rate=1.0)), Command(rate=1.0)),
    "a stop": (lambda s, run: give_command(s, "r0", run, Command(stop=True)), Command(stop=True)),
    "a claim": (lambda s, run: claim_run(s, "r0", "e" * 32, Command()), Command()),
}


@pytest.mark.parametrize("claims_first", [False, True])
@pytest.mark.parametrize(("act", "given"), GIVEN.values(), ids=GIVEN.keys())
def test_the_latest_runs_command_stands_whatever_comes_between(
    act: Act, given: Command, claims_first: bool
) -> None:
    """Each run is held before each of its storage operations while the other one continues."""
    for first in itertools.count():
        for second in itertools.count():
            first_held, second_held = take_turns(act, given, claims_first, first, second)
            if not second_held:
                break
        if not first_held:
            return


def take_turns(
    act: Act, given: Command, claims_first: bool, first: int, second: int
) -> tuple[bool, bool]:
    clear_memory()
    stream = memory_stream()
    before = claim_run(stream, "r0", "b" * 32, Command())
    fenced: list[str] = []

    def side(name: str, act: Act) -> Callable[[JournalStream], None]:
        def run(stream: JournalStream) -> None:
            try:
                act(stream, before)
            except FencedError:
                fenced.append(name)

        return run

    other = side("other", act)
    claim = side("claim", lambda s, run: claim_run(s, "r0", "f" * 32, RATE))
    sides = (claim, other) if claims_first else (other, claim)
    held = interleave(stream, sides[0], first, sides[1], second)

    (only,) = (name for name in listed(stream) if name.endswith(".command.json"))
    newest = newest_run(stream, "r0")
    assert newest is not None
    assert newest in only
    assert newest != before
    won = "claim" if newest.endswith("f") else "other"
    assert won not in fenced
    assert newest_command(stream, "r0") == (RATE if won == "claim" else given)
    with pytest.raises(FencedError, match="a later run took this receiver over"):
        give_command(stream, "r0", before, Command(stop=True))
    return held


def listed(stream: JournalStream) -> list[str]:
    return [entry.name for entry in stream.storage.list("s/control")]


def test_a_run_that_claims_later_is_later_also_when_every_claim_is_killed_half_way() -> None:
    """Killed after its file was written, before it removed the ones before."""
    stream = memory_stream()
    for number, run_id in enumerate("fedcba"):
        run = f"{number:020d}-{run_id * 32}"
        stream.storage.create(f"s/control/r0.{run}.command.json", b"{}")
    assert claim_run(stream, "r0", "0" * 32, RATE) == newest_run(stream, "r0")
    assert len(listed(stream)) == 1


def test_names_that_begin_alike_are_different_receivers() -> None:
    stream = memory_stream()
    one, other = (claim_run(stream, name, "a" * 32, Command()) for name in ("r0", "r0.x"))
    claim_run(stream, "r0", "b" * 32, RATE)
    assert read_command(stream, "r0", one) is None
    assert read_command(stream, "r0.x", other) == Command()


def test_keys_of_later_versions_are_ignored() -> None:
    stream = memory_stream()
    run = claim_run(stream, "r0", "a" * 32, Command())
    status = Status(run, "r0-00000000", "started", "here", 7, changed_ms=1)
    files = {f"r0.{run}.command.json": asdict(RATE), "r0.status.json": asdict(status)}
    for name, values in files.items():
        content = json.dumps({**values, "not_yet_known": {"deep": [1]}}).encode()
        stream.storage.create(f"s/control/{name}", content, overwrite=True)
    assert read_command(stream, "r0", run) == RATE
    assert read_status(stream, "r0") == status


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b'"x"', b'{"run": "r"}', b"\xff"])
def test_damage_names_the_file(content: bytes) -> None:
    stream = memory_stream()
    stream.storage.create("s/control/r0.status.json", content)
    with pytest.raises(LogFormatError, match=r"delete it.*r0.status.json"):
        read_status(stream, "r0")


def test_what_is_measured_is_written_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not a change of the receiver's state."""
    now_s = 1000.0
    status = "penstock.receivers.supervisor.status"
    monkeypatch.setattr(f"{status}.time.monotonic", lambda: now_s)
    monkeypatch.setattr(f"{status}._now_ms", lambda: round(1000 * now_s))
    stream = memory_stream()
    task = ReceiverTask(SocketReceiver("nowhere", 1), stream, "r0", f"{0:020d}-{'a' * 32}", HASTY)
    report = StatusReport(task)

    def written() -> tuple[int, float | None]:
        found = read_status(stream, "r0")
        assert found is not None
        assert found.changed_ms == said.changed_ms
        return found.refused, found.publish_ms

    report.say("started", "r0-00000000")
    found = read_status(stream, "r0")
    assert found is not None
    said = found
    report.measured(7, 2.345)
    assert written() == (0, None)
    now_s += 31
    report.measured(8, 2.345)
    assert written() == (8, 2.3)
    now_s += 29
    report.measured(9, 2.0)
    assert written() == (8, 2.3)
    now_s += 2
    report.measured(8, 2.345)  # nothing changed: it tells that the receiver lives
    found = read_status(stream, "r0")
    assert found is not None
    assert found.said_ms == 1_062_000


class Watched:
    """A receiver's watch over a storage that can fail, and a clock that stands still."""

    def __init__(self) -> None:
        stream = memory_stream()
        self.storage = FaultyStorage(stream.storage)
        self.stream = JournalStream(self.storage, stream.name, stream.format)
        self.now_s = 0.0
        self.run = claim_run(self.stream, "r0", "a" * 32, RATE)
        task = ReceiverTask(SocketReceiver("nowhere", 1), self.stream, "r0", self.run, HASTY)
        self.watch = Watch(task, StatusReport(task), lambda: 1, 1, lambda: self.now_s)


@pytest.mark.parametrize(("kind", "path"), [("read", "*.command.json"), ("list", "*/control")])
def test_storage_errors_are_borne_for_a_minute(kind: OperationKind, path: str) -> None:
    watched = Watched()
    assert watched.watch.first_command() == RATE
    if kind == "list":
        watched.storage.delete(f"s/control/r0.{watched.run}.command.json")
    for now_s in (0.0, 30.0, STORAGE_PATIENCE_S - 1):
        watched.now_s = now_s
        watched.storage.fail(kind, path=path)
        assert watched.watch.poll() == RATE
    watched.now_s = STORAGE_PATIENCE_S
    watched.storage.fail(kind, path=path)
    with pytest.raises(StorageError, match="a fault was ordered"):
        watched.watch.poll()


def test_the_minute_begins_again_after_a_read_that_worked() -> None:
    watched = Watched()
    watched.watch.first_command()
    for now_s in (0.0, STORAGE_PATIENCE_S, 2 * STORAGE_PATIENCE_S):
        watched.now_s = now_s
        watched.storage.fail("read", path="*.command.json")
        assert watched.watch.poll() == RATE
        assert watched.watch.poll() == RATE


def test_a_stop_that_was_read_holds_while_the_storage_fails() -> None:
    watched = Watched()
    watched.watch.first_command()
    give_command(watched.stream, "r0", watched.run, Command(stop=True))
    stop = watched.watch.poll()
    watched.storage.fail("read", path="*.command.json")
    assert watched.watch.poll() == stop == Event("commanded", "commanded")


def test_a_claim_removes_what_killed_processes_left_in_the_folder(tmp_path: Path) -> None:
    stream = JournalStream.create(open_storage(tmp_path), "s", RecordFormat("string"))
    claim_run(stream, "r0", "a" * 32, Command())
    left = tmp_path / "s" / "control" / temporary_name("r0.status.json")
    left.write_bytes(b"{")
    claim_run(stream, "r0", "b" * 32, Command())
    assert not left.exists()
