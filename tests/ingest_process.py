"""A real ``penstock ingest`` process, and receivers of the tests' own for it to run."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.journal import (
    JournalStream,
)
from penstock.receivers import Receiver
from penstock.storage.local import LocalStorage
from tests.journal.helpers import read_all
from tests.waiting import WAIT_S, eventually

__all__ = ["Counting", "HangingStop", "Ingest", "ingest", "open_stream", "records"]

_MAIN = "from penstock.cli.main import main; main()"


class Ingest:
    """One process; its log is kept in a file."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, "ingest", *arguments], stderr=log, stdout=log
            )
        self.pid = self._process.pid

    def log(self) -> str:
        return self._log.read_text()

    def wait_receiving(self) -> None:
        self.wait_log(" receives: ")

    def wait_log(self, text: str) -> None:
        assert eventually(lambda: text in self.log() or self._process.poll() is not None)
        assert text in self.log(), self.log()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Return the exit status."""
        try:
            return self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end: {self.log()}") from None

    def is_running(self) -> bool:
        return self._process.poll() is None

    def drain(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def ingest(folder: Path, name: str, *arguments: str) -> Iterator[Ingest]:
    """Run a process; it does not outlive the block."""
    process = Ingest(folder, name, *arguments)
    try:
        yield process
    finally:
        process.kill()


def open_stream(journal: Path, name: str = "s") -> JournalStream:
    # Not open_storage, which tries the place out by writing: it may be read-only.
    return JournalStream.open(LocalStorage.attach(str(journal)), name)


def records(journal: Path, name: str = "s") -> list[Any]:
    """Return all durable records that are held."""
    return read_all(open_stream(journal, name))


class Counting(Receiver):
    """Stores 0 .. count-1 once over all of its lives, then stops; notes each ack in a file."""

    def __init__(self, count: int, acks: str, stop: bool = True) -> None:
        self._count = count
        self._acks = acks
        self._stop = stop

    def onStart(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def onStop(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        for n in range(self.lastPosition() or 0, self._count):
            self.store(str(n), position=n + 1, ack=lambda n=n: self._note(n))
        if self._stop:
            self.stop("counted")

    def _note(self, n: int) -> None:
        with open(self._acks, "a") as file:
            file.write(f"{n}\n")


class HangingStop(Receiver):
    """Does not stop."""

    def onStart(self) -> None:
        pass

    def onStop(self) -> None:
        threading.Event().wait()
