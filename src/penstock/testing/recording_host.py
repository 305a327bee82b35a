"""A receiver host that records what a receiver does and does what a test scripts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import AlreadyExistsError, NotFoundError
from penstock.journal import DeferredPosition
from penstock.journal.layout import WriterId
from penstock.receivers.own_files import OwnFiles
from penstock.receivers.receiver import Position, Receiver, ReceiverIdentity, Records

_WRITER = str(WriterId("r0", 0))


class Stored(NamedTuple):
    """One ``store`` call: its records in order, and the position given with them."""

    records: list[Any]
    position: Position


class Report(NamedTuple):
    """One ``reportError``, ``restart`` or ``stop`` call."""

    message: str
    error: BaseException | None


class RecordingHost:
    """Runs a receiver without Spark and without a journal, for tests of receivers.

    A store is "durable" as soon as it is recorded; its ack runs then, outside the lock. All waits
    end with an AssertionError after ``wait_s``, and at once when the receiver reports what the test
    did not announce with ``expect_errors``: a failed receiver fails the test, it does not hang it.

    Args:
        position: what ``lastPosition`` returns before the first store.
        expect_errors: whether reports, restarts and stops are part of the test.
    """

    wait_s: float = 10.0
    """The longest wait, in seconds; tests on busy machines set a longer one, of the class."""

    def __init__(self, position: Position = None, *, expect_errors: bool = False) -> None:
        self._changed = threading.Condition()
        self._position = position
        self._expect_errors = expect_errors
        self._blocked = False
        self._stopping = False
        self._store_error: BaseException | None = None
        self._files = _FilesInMemory()
        self.stores: list[Stored] = []
        self.errors: list[Report] = []
        self.restarts: list[Report] = []
        self.stops: list[Report] = []

    @contextmanager
    def run(self, receiver: Receiver) -> Iterator[None]:
        """Start the receiver for the length of a ``with`` block, then stop it as a host does."""
        receiver.attach(self)
        with self._changed:
            self._stopping = False
        receiver.onStart()
        try:
            yield
        finally:
            self.request_stop()
            receiver.onStop()

    @property
    def records(self) -> list[Any]:
        """All records stored so far, in order."""
        with self._changed:
            return [record for stored in self.stores for record in stored.records]

    def fail_stores(self, error: BaseException | None) -> None:
        """Let every further store raise ``error``; None ends that."""
        with self._changed:
            self._store_error = error

    def block_stores(self) -> None:
        """Let every further store block, as under back pressure, until unblocked or stopped."""
        with self._changed:
            self._blocked = True

    def unblock_stores(self) -> None:
        """Let blocked stores continue."""
        with self._changed:
            self._blocked = False
            self._changed.notify_all()

    def request_stop(self) -> None:
        """Let ``isStopped`` be true, and blocked stores continue, until the next ``run``."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def wait_for_records(self, count: int) -> list[Any]:
        """Wait until ``count`` records or more are stored; return them all."""
        self.wait_until(lambda: sum(len(stored.records) for stored in self.stores) >= count)
        return self.records

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds; it is looked at after each call of the receiver."""
        with self._changed:
            done = self._changed.wait_for(lambda: condition() or self._failed(), self.wait_s)
            met = condition()
        if self._failed():
            report = [*self.errors, *self.restarts, *self.stops][0]
            raise AssertionError(f"the receiver reported: {report.message}") from report.error
        if not (done and met):
            raise AssertionError(
                f"not met within {self.wait_s:g} s; stored {len(self.records)} records, "
                f"errors {self.errors}, restarts {self.restarts}, stops {self.stops}"
            )

    def _failed(self) -> bool:
        return not self._expect_errors and bool(self.errors or self.restarts or self.stops)

    # The rest is the ReceiverHost protocol.

    def store(self, records: Records, position: Position, ack: Callable[[], None] | None) -> None:
        """Record the call; block or raise where the test says so."""
        plain = _as_list(records)
        with self._changed:
            self._changed.wait_for(lambda: not self._blocked or self._stopping)
            if self._store_error is not None:
                raise self._store_error
            if isinstance(position, DeferredPosition):
                start = sum(len(stored.records) for stored in self.stores)
                position.place(_WRITER, start, start + len(plain))
                position = position.value()
            self.stores.append(Stored(plain, position))
            self._changed.notify_all()
        if ack is not None:
            ack()

    def try_store(
        self, records: Records, position: Position, ack: Callable[[], None] | None
    ) -> int:
        """Record the call, or refuse it for 100 ms while stores are blocked."""
        with self._changed:
            if self._blocked and not self._stopping:
                return 100
        self.store(records, position, ack)
        return 0

    def report_error(self, message: str, error: BaseException | None) -> None:
        """Record the report."""
        self._record(self.errors, message, error)

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        """Record the request and let ``isStopped`` be true; the test decides when to run again."""
        self._record(self.restarts, message, error, stopping=True)

    def stop(self, message: str, error: BaseException | None) -> None:
        """Record the request and let ``isStopped`` be true."""
        self._record(self.stops, message, error, stopping=True)

    def is_stopped(self) -> bool:
        """Whether a stop or restart was asked for since the last ``run``."""
        with self._changed:
            return self._stopping

    def last_position(self) -> Position:
        """Return the position of the last store that had one, else the one given at first."""
        with self._changed:
            positions = [s.position for s in self.stores if s.position is not None]
            return positions[-1] if positions else self._position

    def own_files(self) -> OwnFiles:
        """Return files that live as long as this host."""
        return self._files

    def identity(self) -> ReceiverIdentity:
        """Return fixed names."""
        return ReceiverIdentity("stream", "r0")

    def _record(
        self,
        reports: list[Report],
        message: str,
        error: BaseException | None,
        *,
        stopping: bool = False,
    ) -> None:
        with self._changed:
            reports.append(Report(message, error))
            self._stopping = self._stopping or stopping
            self._changed.notify_all()


class _FilesInMemory:
    """OwnFiles without a storage."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> None:
        if name in self._files:
            raise AlreadyExistsError("the name is taken", operation="create", path=name)
        self._files[name] = data

    def read(self, name: str) -> bytes:
        if name not in self._files:
            raise NotFoundError("there is no such file", operation="read", path=name)
        return self._files[name]

    def names(self) -> list[str]:
        return sorted(self._files)

    def delete(self, name: str) -> None:
        self._files.pop(name, None)


def _as_list(records: Records) -> list[Any]:
    if isinstance(records, (pa.RecordBatch, pa.Table)):
        source = records.column(0) if records.num_columns == 1 else records
        return list(source.to_pylist())
    if isinstance(records, (str, bytes, dict, tuple)) or not hasattr(records, "__iter__"):
        return [records]
    return list(records)
