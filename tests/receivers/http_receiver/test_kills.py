"""kill -9 at every system call of a publish, then the request again: stored exactly once.

One journal lives through all of it. Each process is asked first for what the last one gave no
answer to, as a client does that sends its request again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.journal import read_records
from penstock.model import OffsetRange
from tests.receivers.http_receiver.stream import journal_records, open_stream

REPOSITORY = Path(__file__).parents[3]
REQUESTS = 5
STRACE = shutil.which("strace")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(STRACE is None, reason="strace is not installed: no kills tried"),
]

# Counts are per thread: first the calls of the takeover, then those of publishes and files of keys.
POINTS = [
    (syscall, nth)
    for syscall, last in [("link", 9), ("fsync", 18), ("unlink", 9), ("write", 12)]
    for nth in range(2, last + 1)
]


def live(root: Path, first: int, syscall: str, nth: int) -> tuple[list[list[str]], bool]:
    """Run the source, killed at a thread's ``nth`` call; return its answers, and if it died."""
    inject = f"inject={syscall}:signal=SIGKILL:when={nth}"
    command = [str(STRACE), "-f", "-qq", "-o", os.devnull]
    command += ["-e", f"trace={syscall}", "-e", inject, sys.executable, "-B", "-m"]
    command += ["tests.receivers.http_receiver.keyed_source", str(root), str(first), str(REQUESTS)]
    found = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": "src"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    died = found.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert died or found.returncode == 0, found.stderr.decode()
    # A last line without its end was cut by the kill: it was never told.
    return [line.split() for line in found.stdout.decode().split("\n")[:-1]], died


def test_a_request_that_is_sent_again_after_a_kill_is_stored_once(tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    answers: dict[int, tuple[str, int]] = {}
    met = 0
    for syscall, nth in [*POINTS, ("link", 1000)]:
        # The last answer is asked for again, too: it has to be the same.
        again = max(answers, default=0)
        found, died = live(tmp_path, again, syscall, nth)
        met += died
        for number, writer, start in found:
            at = (writer, int(start))
            assert answers.setdefault(int(number), at) == at, (syscall, nth)
        records = list(map(int, journal_records(stream)))
        assert records == list(range(len(records))), (syscall, nth)
        assert len(records) >= len(answers)
    assert met >= 0.8 * len(POINTS)
    for number, (writer, start) in answers.items():
        assert list(read_records(stream, [OffsetRange(writer, start, start + 1)])) == [str(number)]
    assert len(list((tmp_path / "clicks" / "receivers" / "r0").iterdir())) > 5
