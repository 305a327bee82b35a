"""A gate in front of a storage operation: stops the thread that comes to it, for a test to act."""

from __future__ import annotations

import threading
from fnmatch import fnmatchcase

from tests.journal.helpers import WAIT_S
from tests.storage.faulty_storage import FaultyStorage, Operation


class Gate:
    """Stops the next operation of a kind, once; others pass meanwhile."""

    def __init__(self, storage: FaultyStorage, kind: str, path: str = "*.parquet") -> None:
        self._kind = kind
        self._path = path
        self._reached = threading.Event()
        self._opened = threading.Event()
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        storage.before = self._pass

    def wait_reached(self) -> None:
        """Wait until a thread stands before the gate."""
        assert self._reached.wait(WAIT_S), f"no {self._kind} of {self._path} began"

    def open(self, error: BaseException | None = None) -> None:
        """Let the thread go on, or let its operation fail with ``error``."""
        self._error = error
        self._opened.set()

    def _pass(self, operation: Operation) -> None:
        with self._lock:
            matches = operation.kind == self._kind and fnmatchcase(operation.path, self._path)
            if not matches or self._reached.is_set():
                return
            self._reached.set()
        assert self._opened.wait(WAIT_S), "the gate was not opened"
        if self._error is not None:
            raise self._error
