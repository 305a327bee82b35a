"""Ends another thread's wait for sockets."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


class Wakeup:
    """A pipe to wait for beside the sockets. Thread-safe; after ``close`` it does nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a descriptor that was closed may be another file's by then
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._read

    def wake(self) -> None:
        """End the wait, the one under way or the next."""
        with self._lock, suppress(BlockingIOError):  # a full pipe wakes as well
            if not self._closed:
                os.write(self._write, b"\0")

    def drain(self) -> None:
        """Forget the calls of ``wake`` so far: to be called by the thread that waits."""
        with suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass

    def close(self) -> None:
        """Free the descriptors."""
        with self._lock:
            self._closed = True
            os.close(self._read)
            os.close(self._write)
