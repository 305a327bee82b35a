"""The status of a running receiver: its status file, and a line in the log.

All attempts of a receiver share one file, and the newest one's status is valid: an attempt that
woke up late sees a later writer in the file, does not write, and knows that it was replaced. If it
was stopped between reading and writing, its successor writes again at its next refresh.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time

from penstock.errors import LogFormatError, PenstockError
from penstock.journal.layout import parse_writer
from penstock.receivers.control import State, Status, read_status, write_status
from penstock.receivers.task import ReceiverTask

_log = logging.getLogger(__name__)
_EVERY_S = 30.0
"""See control.is_silent."""


class StatusReport:
    """Keeps one attempt's status in its receiver's status file. Thread-safe."""

    def __init__(self, task: ReceiverTask) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._state: State = "restarting"
        self._writer = ""
        self._errors = 0
        self._last_error: str | None = None
        self._changed_ms = 0
        self._measured: tuple[int, float | None] = (0, None)
        self._written_s = -math.inf

    def say(self, state: State, writer: str) -> None:
        """Write the receiver's state and writer."""
        with self._lock:
            self._state, self._writer = state, writer
            self._changed_ms = _now_ms()
            self._write()

    def measured(self, refused: int, publish_ms: float | None) -> None:
        """Write what was measured, twice a minute: each write is a request to an object store."""
        with self._lock:
            if time.monotonic() - self._written_s > _EVERY_S:
                self._measured = (refused, None if publish_ms is None else round(publish_ms, 1))
                self._write()

    def refresh(self) -> bool:
        """See that the file says what this attempt said; return whether a later one took over."""
        with self._lock:
            try:
                found = self._read()
            except PenstockError:
                return False  # the next refresh will detect it
            if found is not None and _epoch(found.writer) > _epoch(self._writer):
                return True
            if found is None or found.writer != self._writer:
                self._write()
            return False

    def error(self, message: str, error: BaseException | None, state: State | None = None) -> None:
        """Report an error, and the receiver's state if it changed."""
        with self._lock:
            self._errors += 1
            is_said = error is None or str(error) in message
            self._last_error = message if is_said else f"{message}: {error}"
            self._changed_ms = self._changed_ms if state in (None, self._state) else _now_ms()
            self._state = state or self._state
            _log.warning("%s: %s", self._who(), self._last_error)
            self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        now_ms = _now_ms()
        status = Status(
            run=self._task.run,
            writer=self._writer,
            state=self._state,
            host=socket.gethostname(),
            pid=os.getpid(),
            changed_ms=self._changed_ms or now_ms,
            errors=self._errors,
            last_error=self._last_error,
            listening_at=self._task.receiver.listeningAt,
            max_bytes=self._task.settings.bounds.max_bytes,
            max_lag_records=self._task.settings.bounds.max_lag_records,
            refused=self._measured[0],
            publish_ms=self._measured[1],
            said_ms=now_ms,
        )
        try:
            found = self._read()
            if found is None or _epoch(found.writer) <= _epoch(self._writer):
                write_status(self._task.stream, self._task.name, status)
        except PenstockError as e:  # for example a full disk, which the log reports already
            _log.warning("%s could not write its status: %s", self._who(), e)
        except Exception:
            _log.exception("%s could not write its status", self._who())

    def _who(self) -> str:
        return f"Receiver {self._task.name} of stream {self._task.stream.name}"

    def _read(self) -> Status | None:
        try:
            return read_status(self._task.stream, self._task.name)
        except LogFormatError:
            return None  # damaged: write it again


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _epoch(writer: str) -> int:
    parsed = parse_writer(writer)
    return -1 if parsed is None else parsed.epoch
