"""The receiver contract: the methods that a push source implements, and those it may call.

A receiver runs as one long task in an executor process (or in ``penstock ingest``, without Spark).
Its life::

    created -> onStart() -> running -> onStop() -> stopped
                  ^            |
                  +- restart --+      (onStop, delay with back-off, onStart)

- ``onStart`` must return quickly: it starts threads (or an event loop) that call ``store``.
- ``onStop`` must end those threads. It may be called at any time after ``onStart``, from another
  thread, also if ``onStart`` failed half way. It is not guaranteed to be called: the process may be
  killed.
- After a start, receiving continues after ``lastPosition()``: the position that was stored with the
  last durable record of this receiver, by any of its attempts. With a position, records are in the
  journal exactly once; without one, at least once.
- ``penstock ingest`` calls ``checkStart`` first, and ends at once if that raises.
- A source that others connect to can stay open while the journal cannot be written, and refuse
  requests: then ``onPause`` and ``onResume`` are called instead of ``onStop`` and ``onStart``.
- An instance is pickled to the executor: open sockets and files in ``onStart``, not
  in ``__init__``.

Prior art: Spark's ``org.apache.spark.streaming.receiver.Receiver``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from penstock.errors import PenstockError, ReceiverError
from penstock.receivers.own_files import OwnFiles

Position: TypeAlias = Any
"""The source's position after a record: any JSON value; only the source knows its meaning."""

Records: TypeAlias = Any | Iterable[Any] | pa.RecordBatch | pa.Table


class ReceiverIdentity(NamedTuple):
    """The identity of a receiver, the same after every restart."""

    stream: str
    receiver: str
    """Unique within the stream: ``r0`` and so on."""


class ReceiverHost(Protocol):
    """The host of a receiver: the supervisor in an executor, the ingest process, or a test."""

    def store(self, records: Records, position: Position, ack: Callable[[], None] | None) -> None:
        """See Receiver.store."""

    def try_store(
        self, records: Records, position: Position, ack: Callable[[], None] | None
    ) -> int:
        """See Receiver.tryStore."""

    def report_error(self, message: str, error: BaseException | None) -> None:
        """See Receiver.reportError."""

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        """See Receiver.restart."""

    def stop(self, message: str, error: BaseException | None) -> None:
        """See Receiver.stop."""

    def is_stopped(self) -> bool:
        """See Receiver.isStopped."""

    def last_position(self) -> Position:
        """See Receiver.lastPosition."""

    def own_files(self) -> OwnFiles:
        """See Receiver.ownFiles."""

    def identity(self) -> ReceiverIdentity:
        """See Receiver.identity."""


class Receiver(ABC):
    """A push source. Subclass it, implement ``onStart`` and ``onStop``, call ``store``.

    ``schema`` is the kind of the records: ``"string"`` (the default: one text column ``value``),
    ``"binary"``, ``"pickle"`` (any Python object), or columns (records are dicts, or whole
    RecordBatches): as text, ``"id int64, name string"``, or as a ``pyarrow.Schema``.
    """

    schema: str | pa.Schema = "string"

    listeningAt: str | None = None
    """The URL for the status; set by ``onStart`` if others connect to this receiver."""

    _host: ReceiverHost | None = None

    @abstractmethod
    def onStart(self) -> None:
        """Start receiving; return quickly. An exception restarts the receiver with back-off."""

    @abstractmethod
    def onStop(self) -> None:
        """End all threads that ``onStart`` started, and release their resources."""

    def checkStart(self) -> None:  # noqa: B027 - most receivers have nothing to check
        """Raise a PenstockError if the receiver would fail on this host however often it is tried.

        For example because another process has its port. Best a ConfigError. Leaves nothing open.
        """

    def onPause(self, error: PenstockError) -> bool:
        """Called when the journal cannot be written, for example because the disk is full.

        Return True to stay open: nothing may be stored until ``onResume`` or ``onStop``, and
        earlier unacked records will not be acked. The default is False: the receiver is stopped,
        and started when the journal can be written again.
        """
        return False

    def onResume(self) -> None:
        """Called after ``onPause`` returned True, when the journal can be written again.

        ``lastPosition()`` returns the last durable position. An exception restarts the receiver.
        """
        self.onStart()

    def store(
        self,
        data: Records,
        position: Position = None,
        ack: Callable[[], None] | None = None,
    ) -> None:
        """Store records in the journal, in order. Thread-safe.

        Args:
            data: one record, an iterable of records (a list, a generator; not str, bytes, dict or
                tuple, which are records), or a pyarrow RecordBatch or Table of this schema: the
                fast way.
            position: the source's position after the last of these records; it becomes durable in
                the same file as they do. Any JSON value, or a penstock.journal.DeferredPosition.
            ack: called after these records are durable, from a thread of the writer, in the order
                of the stores, and never when an earlier publish failed. Must not block.

        A list or other iterable without ``ack`` is durable when this returns; other stores return
        as soon as they are buffered. Blocks while too much is buffered or a rate limit is reached.
        Once the receiver is stopped no limit applies, so that no received record is lost.

        Under a rate limit a RecordBatch or Table without position is divided into blocks, so that
        records come evenly. Other stores become durable as a whole, and the next store waits for
        the part above a block interval's worth.

        Raises:
            FencedError, WriterBrokenError: no record of this call will be acked; end the thread,
                the host restarts the receiver.
            JournalFullError: a WriterBrokenError: a bound on the journal is reached, and the
                receiver is to stop, or not to wait.
            ConfigError: the records do not match the schema.
        """
        self._attached().store(data, position, ack)

    def tryStore(
        self,
        data: Records,
        position: Position = None,
        ack: Callable[[], None] | None = None,
    ) -> int:
        """Store records in the journal if it accepts them now, as a whole.

        For sources that can ask their sender to retry (HTTP's 429 with Retry-After), instead of
        blocking a thread for the rate limit, or while too much is buffered. Arguments and
        exceptions are those of ``store``.

        Returns:
            0 if they were stored, otherwise the milliseconds after which to retry: nothing was
            stored.
        """
        return self._attached().try_store(data, position, ack)

    def reportError(self, message: str, error: BaseException | None = None) -> None:
        """Report a problem that the receiver survives to the driver."""
        self._attached().report_error(message, error)

    def restart(
        self, message: str, error: BaseException | None = None, delay_ms: int | None = None
    ) -> None:
        """Stop and start again, from another thread, after ``delay_ms`` (default: back-off)."""
        self._attached().restart(message, error, delay_ms)

    def stop(self, message: str, error: BaseException | None = None) -> None:
        """End this receiver for good; buffered records are still published."""
        self._attached().stop(message, error)

    def isStopped(self) -> bool:
        """Whether receiving threads have to end: after a stop, or during a restart."""
        return self._host is None or self._host.is_stopped()

    def lastPosition(self) -> Position:
        """Return the position stored with the last durable record, None without one."""
        return self._attached().last_position()

    def ownFiles(self) -> OwnFiles:
        """Return this receiver's own small files, kept beside the journal."""
        return self._attached().own_files()

    def identity(self) -> ReceiverIdentity:
        """Return the names of the stream and, within it, of this receiver."""
        return self._attached().identity()

    def attach(self, host: ReceiverHost) -> None:
        """Called by the host, once, before the first ``onStart``."""
        self._host = host

    def _attached(self) -> ReceiverHost:
        if self._host is None:
            raise ReceiverError(
                f"{type(self).__name__} is not running",
                operation="use receiver",
                hint="call store, restart, stop and lastPosition only between onStart and onStop",
            )
        return self._host

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_host", None)  # the host belongs to one process
        return state
