"""Several processes on one folder, and processes killed at each system call of a create."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.errors import AlreadyExistsError
from penstock.storage import Entry
from penstock.storage.local import LocalStorage
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

RACERS, ROUNDS = 8, 300

RACER = """
import json, sys
from penstock.errors import AlreadyExistsError
from penstock.storage.local import LocalStorage

root, racer, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
storage = LocalStorage(root)
won = []
print("ready", flush=True)
sys.stdin.readline()
for number in range(rounds):
    try:
        storage.create(f"folder{number % 7}/{number}", racer.encode() * 100)
        won.append(number)
    except AlreadyExistsError:
        pass
print(json.dumps(won))
"""


def test_exactly_one_of_several_processes_creates_a_name(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(racer), str(ROUNDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for racer in range(RACERS)
    ]
    for process in racers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in racers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [json.loads(process.communicate(timeout=WAIT_S)[0]) for process in racers]

    assert [process.returncode for process in racers] == [0] * RACERS
    assert sorted(number for numbers in won for number in numbers) == list(range(ROUNDS))
    storage = LocalStorage(tmp_path)
    for racer, numbers in enumerate(won):
        for number in numbers:
            assert storage.read(f"folder{number % 7}/{number}") == b"%d" % racer * 100
    assert list(tmp_path.rglob(".*.tmp")) == []


STRACE = shutil.which("strace")
CALLS = "open,openat,write,fsync,close,link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdir"
CONTENT = b"0123456789" * 1000

# Only the markers on standard output tell which system calls belong to the operation.
CREATOR = """
import os, sys
from penstock.storage.local import LocalStorage

storage = LocalStorage.attach(sys.argv[1])
os.write(1, b"begin")
storage.create("new/file", b"0123456789" * 1000, overwrite=sys.argv[2] == "overwrite")
os.write(1, b"end")
"""


def traced(root: Path, how: str, options: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run CREATOR under strace."""
    assert STRACE is not None
    command = [STRACE, "-f", *options]
    # -S -B: a start without site-packages and .pyc writing makes the same calls each time.
    program = [sys.executable, "-S", "-B", "-c", CREATOR, str(root), how]
    return subprocess.run([*command, *program], capture_output=True, timeout=WAIT_S, check=False)


def kill_points(root: Path, log: Path, how: str) -> list[tuple[str, int]]:
    """Return (call, its number since the process began) for each call of one whole create."""
    result = traced(root, how, ["-o", str(log), "-e", f"trace={CALLS}"])
    assert (result.returncode, result.stdout) == (0, b"beginend"), result.stderr
    counts: Counter[str] = Counter()
    points: list[tuple[str, int]] = []
    inside = False
    for line in log.read_text().splitlines():
        found = re.match(r"\d+ +(\w+)\((.*)", line)
        if found is None:
            continue
        call, arguments = found.groups()
        counts[call] += 1
        if arguments.startswith('1, "end"'):
            return points
        if inside:
            points.append((call, counts[call]))
        inside = inside or arguments.startswith('1, "begin"')
    raise AssertionError(f"no end of the operation in {log.read_text()}")


@pytest.mark.skipif(STRACE is None, reason="strace is not installed: kills are not tried")
@pytest.mark.parametrize("how", ["exclusive", "overwrite"])
def test_kill_at_each_system_call_of_create(tmp_path: Path, how: str) -> None:
    points = kill_points(tmp_path / "whole", tmp_path / "log", how)

    calls = {call for call, _ in points}
    naming = {"rename", "renameat", "renameat2"} if how == "overwrite" else {"link", "linkat"}
    assert {"mkdir", "openat", "write", "fsync", "close"} <= calls
    assert calls & naming
    outcomes = set()
    for index, (call, number) in enumerate(points):
        root = tmp_path / str(index)
        kill = f"inject={call}:signal=SIGKILL:when={number}"
        result = traced(root, how, ["-o", os.devnull, "-e", f"trace={call}", "-e", kill])
        assert result.stdout == b"begin", f"{kill} did not kill inside create: {result.stderr!r}"
        outcomes.add(check_after_kill(LocalStorage(root), how))
    assert outcomes == {"absent", "whole"}


def check_after_kill(storage: LocalStorage, how: str) -> str:
    """Check that the file is whole or absent and can be created again; say which it was."""
    found = list(storage.list("new"))
    if not found:
        storage.create("new/file", CONTENT)
        outcome = "absent"
    else:
        assert found == [Entry("file", size=len(CONTENT))]
        assert storage.read("new/file") == CONTENT
        with pytest.raises(AlreadyExistsError):
            storage.create("new/file", b"other")
        storage.create("new/file", CONTENT, overwrite=True)
        outcome = "whole"
    assert storage.read("new/file") == CONTENT
    return outcome
