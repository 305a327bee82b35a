"""Stores requests with keys as the receiver does, and writes each answer down.

It takes over from what wrote before, and kills its process at a system call from then on, before
the call has any effect. A request that the journal knows already is answered from there.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

from penstock.journal import CommitPolicy, JournalWriter
from penstock.receivers.http import key_window
from penstock.receivers.http.answers import Placement
from penstock.receivers.http.key_window import KeyWindow
from penstock.receivers.http.keys import KnownKeys, content_digest, key_hash
from penstock.receivers.http.stores import Acks, PendingStore
from penstock.receivers.own_files import StoredFiles
from penstock.storage.local import LocalStorage
from penstock.storage.syscalls import Syscalls
from tests.receivers.http_receiver.stream import open_stream

WINDOW_MS = 3_600_000


class Killing(Syscalls):
    """Kills the process at a system call, from ``countdown`` on."""

    def __init__(self) -> None:
        self.countdown: Iterator[int] | None = None

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if callable(value) and self.countdown is not None and next(self.countdown) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return value


def answer(root: str, answers: str, first: int, count: int, kill_at: int) -> None:
    """Answer ``count`` requests, one block each."""
    told = os.open(answers, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    asyncio.run(_answer(root, told, first, count, kill_at))


async def _answer(root: str, told: int, first: int, count: int, kill_at: int) -> None:
    key_window.FILE_KEYS = 2  # so that files of keys are written and named all the time
    calls = Killing()
    stream = open_stream(LocalStorage(root, syscalls=calls))
    writer = JournalWriter(stream, "r0", policy=CommitPolicy(spacing_ms=0))
    files = StoredFiles(stream.storage, "clicks/receivers/r0")
    window = KeyWindow(WINDOW_MS, files, writer.position)
    known = KnownKeys(WINDOW_MS, window.load())
    acks = Acks(asyncio.get_running_loop(), lambda stored: stored.settle(stored.at))  # type: ignore[arg-type]
    calls.countdown = iter(range(kill_at - 1, -1, -1))
    for number in range(first, first + count):
        key, content = key_hash(b"k%d" % number), content_digest("text", b"%d" % number)
        kept = known.find(key, window.clock.time_ms())
        if kept is None:
            pending = PendingStore(acks, window, key, content)
            writer.append(str(number), position=pending, ack=pending.ack)
            say(told, number, await pending.settled())
        else:
            assert kept.content == content
            say(told, number, kept.at)
    writer.close()


def say(told: int, number: int, at: Placement) -> None:
    os.write(told, f"{number} {at.writer} {at.start}\n".encode())
