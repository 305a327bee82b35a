"""Stores numbered lines while queries run."""

from __future__ import annotations

import threading

from penstock.journal import JournalStream, JournalWriter

__all__ = ["Sender"]


class Sender(threading.Thread):
    """Stores numbered lines, and opens its writer anew now and then, as a restarted receiver."""

    def __init__(self, stream: JournalStream) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._stream = stream
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            writer = JournalWriter(self._stream, "r0")
            for _ in range(20):
                writer.append_all([str(self.sent + each) for each in range(10)])
                writer.flush()
                self.sent += 10
                self._ended.wait(0.05)
            writer.close()

    def end(self) -> int:
        """Return how many were stored."""
        self._ended.set()
        self.join()
        return self.sent
