"""SIGKILL at each system call of takeover, publish and seal; then recovery, killed as well.

One journal lives through all of it. Each process goes on from the durable position that it finds,
so the journal must hold exactly 0 .. n-1, with every number that any of them wrote down as acked.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.journal import JournalStream
from penstock.journal.epochs import claim_writer
from penstock.storage import open_storage
from tests.journal.helpers import read_all
from tests.journal.replayed_source import replay
from tests.strace import needs_strace, traced

RECORDS = 6

pytestmark = [pytest.mark.slow, needs_strace]


def ready(root: str, acked: str) -> Callable[[], object]:
    return partial(replay, root, RECORDS, acked)


def live(root: Path, syscall: str, nth: int) -> tuple[list[int], bool]:
    """Run the source, killed at a thread's ``nth`` call; return what it acked, and if it died."""
    acked = root.with_name("acked")
    acked.write_bytes(b"")
    inject = f"{syscall}:signal=SIGKILL:when={nth}"
    code = traced(ready, (str(root), str(acked)), os.devnull, inject, threads=True)
    assert code in (0, -signal.SIGKILL)
    # A last line without its end was cut by the kill: it was never told.
    return [int(line) for line in acked.read_text().split("\n")[:-1]], code != 0


def check(root: Path, acked: list[int]) -> None:
    stream = JournalStream.open(open_storage(root), "lines")
    records = list(map(int, read_all(stream)))
    assert records == list(range(len(records)))
    assert len(acked) == len(set(acked))
    assert set(acked) <= set(records)


def sweep(root: Path, points: list[tuple[str, int]]) -> int:
    """Kill at each point in turn, checking after each; return how many of them were met."""
    acked: list[int] = []
    met = 0
    live(root, "link", 1000)  # the first life is a whole one
    acked += range(RECORDS)
    for syscall, nth in points:
        more, died = live(root, syscall, nth)
        acked += more
        met += died
        check(root, acked)
    more, died = live(root, "link", 1000)
    acked += more
    assert not died
    check(root, acked)
    stream = JournalStream.open(open_storage(root), "lines")
    assert claim_writer(stream, "r0")[1] == acked[-1] + 1
    return met


# Counts are per thread: the first calls are the takeover's, later ones those of publishes and acks.
POINTS = [
    (syscall, nth)
    for syscall, last in [("mkdir", 2), ("link", 6), ("fsync", 13), ("unlink", 7), ("write", 12)]
    for nth in range(1, last + 1)
]


def test_kills_at_every_call_of_takeover_and_publish(tmp_path: Path) -> None:
    assert sweep(tmp_path / "journal", POINTS) >= 0.8 * len(POINTS)
