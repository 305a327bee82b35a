"""kill -9 at every system call of a publish, then the request again: stored exactly once.

One journal lives through all of it. Each process is asked first for what the last one gave no
answer to, as a client does that sends its request again.
"""

from __future__ import annotations

import itertools
import os
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
from tests.forked import run_forked
from tests.journal.helpers import read_all
from tests.receivers.http_receiver.keyed_source import answer
from tests.receivers.http_receiver.stream import open_stream
from tests.waiting import WAIT_S, eventually

REPOSITORY = Path(__file__).parents[3]
REQUESTS = 3
LEAST_CALLS = 7
"""Of a file that becomes durable: open, write, fsync, close, link, unlink, fsync of the folder."""

pytestmark = pytest.mark.slow


def live(root: Path, first: int, kill_at: int) -> tuple[list[list[str]], bool]:
    """Run the source, killed at a system call; return its answers, and whether it died."""
    answers = root / "answers"
    answers.write_bytes(b"")
    code = run_forked(answer, str(root), str(answers), first, REQUESTS, kill_at)
    assert code in (0, -signal.SIGKILL)
    # A last line without its end was cut by the kill: it was never told.
    return [line.split() for line in answers.read_text().split("\n")[:-1]], code != 0


def test_a_request_that_is_sent_again_after_a_kill_is_stored_once(tmp_path: Path) -> None:
    stream = open_stream(tmp_path)
    answers: dict[int, tuple[str, int]] = {}
    unanswered = 0
    for kill_at in itertools.count(1):
        # The last answer is asked for again, too: it has to be the same.
        found, died = live(tmp_path, max(answers, default=0), kill_at)
        for number, writer, start in found:
            at = (writer, int(start))
            assert answers.setdefault(int(number), at) == at, kill_at
        records = list(map(int, read_all(stream)))
        assert records == list(range(len(records))), kill_at
        assert len(records) >= len(answers)
        unanswered += len(records) > len(answers)
        if not died:
            break
    assert kill_at > 3 * LEAST_CALLS, "a publish and a file take more calls than that"
    assert unanswered, "no kill fell between a publish and its answer"
    for number, (writer, start) in answers.items():
        assert list(read_records(stream, [OffsetRange(writer, start, start + 1)])) == [str(number)]
    assert len(list((tmp_path / "clicks" / "receivers" / "r0").iterdir())) > 3


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
        with httpx.Client(timeout=WAIT_S) as http:
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
                    before = len(read_all(open_stream(tmp_path)))
                    assert eventually(
                        lambda before=before: len(read_all(open_stream(tmp_path))) > before + 100
                    )
                    if life == lives - 1:
                        over.set()
                        answered = [name for each in running for name in each.result()]
        finally:
            over.set()
    records = read_all(open_stream(tmp_path))
    assert len(records) == len(set(records)), "a request was stored twice"
    assert set(records) == set(answered)
