"""Each line exactly once: a real writer that rotates, a receiver process killed at any moment."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.forked import forked
from tests.receivers.tail_process import follow
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

NAMES = ["renamed.log", "copied.log", "dated-0.log"]


def key_of(line: str) -> str:
    """Return the file and number in a line, without its padding."""
    return " ".join(line.split(" ", 2)[:2])


class Ledger:
    """What was published, as a driver would read it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.lines: Counter[str] = Counter()
        self._read = 0

    def update(self) -> Counter[str]:
        published = sorted(self.directory.glob("*.json"))
        for file in published[self._read :]:
            lines = json.loads(file.read_text())["lines"]
            self.lines.update(map(key_of, lines))
        self._read = len(published)
        return self.lines

    def published(self) -> int:
        return len(list(self.directory.glob("*.json")))

    def wait_for(self, lines: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.update().total() < lines and time.monotonic() < deadline:
            time.sleep(0.01)

    def position_bytes(self) -> int:
        last = sorted(self.directory.glob("*.json"))[-1]
        return len(json.dumps(json.loads(last.read_text())["position"]))


def receiver(ledger: Ledger, logs: Path, group: int, errors: Path) -> AbstractContextManager[None]:
    """A receiver process, killed with SIGKILL at the end of the block."""
    patterns = [str(logs / name) for name in ("renamed.log", "copied.log", "dated-*.log")]
    return forked(follow, str(ledger.directory), group, *patterns, errors=errors)


def delete_what_is_stored(logs: Path, ledger: Ledger, chance: random.Random) -> None:
    """Delete old files at random, as an operator does, but only what the ledger holds.

    Not those of renamed.log: their names move meanwhile.
    """
    dated = sorted(logs.glob("dated-*.log"), key=lambda path: int(path.stem.split("-")[1]))
    for path in [*dated[:-1], *logs.glob("copied.log.*")]:
        stored = all(key_of(line) in ledger.lines for line in path.read_text().splitlines())
        if stored and chance.random() < 0.5:
            path.unlink()


def kill_while_writing(tmp_path: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    logs, errors = tmp_path / "logs", tmp_path / "errors"
    logs.mkdir()
    ledger = Ledger(tmp_path / "published")
    # Following begins with the first store: what rotated before it is history, as for tail -F.
    for name in NAMES:
        (logs / name).write_text(f"{name} first\n")
    with receiver(ledger, logs, 1, errors):
        ledger.wait_for(len(NAMES))

    command = [sys.executable, "-m", "tests.receivers.log_writer", logs, str(seed), str(kills * 25)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        for _ in range(kills):
            published = ledger.published()
            with receiver(ledger, logs, chance.choice([1, 1, 3]), errors):
                deadline = time.monotonic() + chance.choice([0.3, 0.5, 2.0])
                wanted = published + chance.randrange(1, 20)
                while ledger.published() < wanted:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(chance.uniform(0, 0.01))
            ledger.update()
            delete_what_is_stored(logs, ledger, chance)
            time.sleep(chance.choice([0, 0, 0.1]))
        written, _ = writer.communicate(timeout=WAIT_S)

    expected = Counter(f"{name} {i}" for name, n in json.loads(written).items() for i in range(n))
    expected.update(f"{name} first" for name in NAMES)
    with receiver(ledger, logs, 1, errors):
        ledger.wait_for(expected.total())
    lost, doubled = expected - ledger.update(), ledger.lines - expected
    assert (sorted(lost), sorted(doubled)) == ([], []), errors.read_text()
    assert "restart:" not in errors.read_text()
    assert ledger.position_bytes() < 20_000
    assert 2 <= len(list((ledger.directory / "own").glob("marks-*"))) <= 8


def test_each_line_once_over_kills_and_rotations(tmp_path: Path) -> None:
    kill_while_writing(tmp_path, seed=1, kills=25)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_each_line_once_over_many_kills_and_rotations(tmp_path: Path, seed: int) -> None:
    kill_while_writing(tmp_path, seed, kills=60)
