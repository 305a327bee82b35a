"""Each line exactly once and in order: random steps of programs, an operator and a receiver.

The steps are taken one after the other, in this process and by a clock of their own, so there are
thousands in a second; real kills, at any moment, are in ``test_tail_kills``.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.receivers.tail.follow import NO_DEVICE, FileId, FollowOptions, Mark
from penstock.receivers.tail.follower import Follower
from tests.receivers.log_writer import Copied, Dated, Holed, Linked, Log, Renamed

TICK_NS = 4_000_000
START_NS = 10**18  # long ago, so what was written since the last step bears a later time
SETTLE_ROUNDS = 60  # a round reads one file of each path, and a path may have many by the end


class Receiver:
    """Stores what a follower reads, and the position, as TailReceiver does."""

    def __init__(self, *patterns: str, rotate_wait_ms: int = 5_000) -> None:
        self.stored: list[str] = []
        self._marks: dict[str, list[Mark]] | None = None  # of the durable position, by path
        self._options = FollowOptions(patterns, True, rotate_wait_ms, max_line_bytes=1_000)
        self._follower: Follower | None = None

    def kill(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        if self._marks is not None:  # a position tells no device
            kept = self._marks.items()
            self._marks = {path: [*map(without_device, marks)] for path, marks in kept}

    def has_mark_of(self, path: Path) -> bool:
        """Whether a durable position tells of what a path leads to now."""
        inode = path.stat().st_ino
        marks = (self._marks or {}).get(str(path), [])
        return any(mark.file_id.inode == inode and mark.offset for mark in marks)

    def store_round(self, *, killed_after: int | None = None) -> None:
        """Look, and read and store once, or be killed after so many stores."""
        if self._follower is None:
            kept = self._marks
            marks = None if kept is None else [mark for each in kept.values() for mark in each]
            self._follower = Follower(self._options, marks, lambda message, error: None)
        self._follower.scan()
        for stores, batch in enumerate(self._follower.read_round()):
            if stores == killed_after:
                self.kill()
                return
            self.stored += map(key_of, batch["value"].to_pylist())
            self._marks = {**(self._marks or {}), **self._follower.changes()}


def without_device(mark: Mark) -> Mark:
    return dataclasses.replace(mark, file_id=FileId(NO_DEVICE, mark.file_id.inode))


def key_of(line: str) -> str:
    """Return the file and number in a line, without its padding."""
    return " ".join(line.split(" ", 2)[:2])


def set_times(directory: Path, now_ns: int) -> None:
    """Date what was written in a step; the kernel's times are too coarse to tell steps apart."""
    for path in directory.iterdir():
        if path.stat().st_mtime_ns > now_ns:
            os.utime(path, ns=(now_ns, now_ns))


@pytest.mark.parametrize("seed", range(10))
def test_each_line_once_whatever_the_order_of_steps(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    logs: list[Log] = [
        Renamed(tmp_path, "renamed.log", chance),
        Copied(tmp_path, "copied.log", chance),
        Dated(tmp_path, "dated-0.log", chance),
        Linked(tmp_path, "linked.log", chance),
    ]
    names = ("renamed.log", "copied.log", "dated-*.log", "linked.log")
    receiver = Receiver(*(str(tmp_path / name) for name in names))
    stored = take_steps(tmp_path, chance, logs, receiver)
    for several in ("dated-0.log", "linked.log"):
        stored[several].sort()  # lines of different paths have no order
    assert stored == {log.name: list(range(log.lines)) for log in logs}


@pytest.mark.parametrize("seed", range(5))
def test_each_line_once_whatever_holes_are_left(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = Holed(tmp_path, "holed.log", chance)
    receiver = Receiver(str(log.path), rotate_wait_ms=0)
    stored = take_steps(tmp_path, chance, [log], receiver)
    assert stored == {log.name: list(range(log.lines))}


def rotate(log: Log, receiver: Receiver) -> None:
    # What a link leads to between two looks cannot be found.
    if not isinstance(log, Linked) or receiver.has_mark_of(log.path):
        log.rotate()


def delete_what_is_stored(
    tmp_path: Path, chance: random.Random, logs: Sequence[Log], receiver: Receiver
) -> None:
    stored = set(receiver.stored)
    for path in sorted(set(tmp_path.iterdir()) - {log.path for log in logs}):
        lines = [] if path.is_symlink() else path.read_text().splitlines()
        # Not empty ones: without a stored byte, a file that got the inode is not told from them
        # and is read in their place, each line once, yet before older files.
        if lines and stored.issuperset(map(key_of, lines)) and chance.random() < 0.5:
            path.unlink()


def take_steps(
    tmp_path: Path, chance: random.Random, logs: Sequence[Log], receiver: Receiver
) -> dict[str, list[int]]:
    """Take random steps; return the numbers of the lines that were stored of each log."""

    steps: dict[Callable[[], None], int] = {
        lambda: chance.choice(logs).write_lines(chance.choice([1, 5, 20])): 9,
        lambda: rotate(chance.choice(logs), receiver): 4,
        receiver.kill: 2,
        lambda: receiver.store_round(killed_after=chance.choice([None, 0, 1, 2])): 4,
        lambda: delete_what_is_stored(tmp_path, chance, logs, receiver): 2,
    }
    for log in logs:  # following begins with the first store: what rotated before it is history
        log.write_lines(1)
    set_times(tmp_path, START_NS)
    receiver.store_round()
    for number, step in enumerate(chance.choices(list(steps), list(steps.values()), k=150), 1):
        step()
        set_times(tmp_path, START_NS + number * TICK_NS)
    receiver.kill()
    for _ in range(SETTLE_ROUNDS):
        receiver.store_round()
    receiver.kill()
    for log in logs:
        log.close()

    stored = defaultdict(list)
    for key in receiver.stored:
        name, count = key.split()
        stored[name].append(int(count))
    return stored
