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
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.journal import read_records
from penstock.model import OffsetRange
from tests.receivers.http_receiver.stream import journal_records, open_stream
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[3]
REQUESTS = 4
STRACE = shutil.which("strace")

pytestmark = pytest.mark.slow

# Counts are per thread: first the calls of the takeover, then those of publishes and files of keys.
POINTS = [
    (syscall, nth)
    for syscall, last in [("link", 7), ("fsync", 14), ("unlink", 7), ("write", 10)]
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


@pytest.mark.skipif(STRACE is None, reason="strace is not installed: no kills tried")
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


@contextmanager
def server(root: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a server process; yields its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.receivers.http_receiver.server_process", str(root)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": "src"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_clients_that_repeat_until_answered_are_stored_once_through_kills(tmp_path: Path) -> None:
    lives, url, over = 4, "", threading.Event()

    def client(number: int) -> list[str]:
        """Send requests one after the other, each until it is answered; return what was."""
        answered: list[str] = []
        with httpx.Client(timeout=20) as http:
            while not over.is_set():
                name = f"{number}-{len(answered)}"
                headers = {"content-type": "text/plain", "idempotency-key": name}
                try:
                    found = http.post(url, content=name.encode(), headers=headers)
                except httpx.TransportError:
                    continue
                if found.status_code == 200:
                    answered.append(name)
        return answered

    with ThreadPoolExecutor(4) as clients:
        running = []
        try:
            for life in range(lives):
                with server(tmp_path) as (url, _):
                    running = running or [clients.submit(client, n) for n in range(4)]
                    before = len(journal_records(open_stream(tmp_path)))
                    assert eventually(
                        lambda before=before: (
                            len(journal_records(open_stream(tmp_path))) > before + 100
                        )
                    )
                    if life == lives - 1:
                        over.set()
                        answered = [name for each in running for name in each.result()]
        finally:
            over.set()
    records = journal_records(open_stream(tmp_path))
    assert len(records) == len(set(records)), "a request was stored twice"
    assert set(records) == set(answered)
