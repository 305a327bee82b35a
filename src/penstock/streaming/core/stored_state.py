"""What a stream that keeps state on the checkpoint location is to the engine."""

from __future__ import annotations

from abc import abstractmethod

from penstock.storage import Storage
from penstock.streaming.core.base import BaseDStream

__all__ = ["StoredStateStream"]


class StoredStateStream(BaseDStream):
    """A stream with state. The engine calls these, in this order; a batch's jobs wait for its own.

    Where one stateful stream is made from another, that one is called first.
    """

    is_written_by_executors = True

    @property
    def stored_state(self) -> StoredStateStream:
        """This stream."""
        return self

    @abstractmethod
    def open_state(self, storage: Storage) -> None:
        """Find the state that there is."""

    @abstractmethod
    def begin_state(self, first_ms: int, committed_ms: int | None, planned_ms: int) -> None:
        """Make the state ready for batches from ``first_ms`` on.

        ``committed_ms`` is the time of the newest batch that is committed already, ``planned_ms``
        that of the newest one that was planned, -1 without one.
        """

    @abstractmethod
    def update_state(self, time_ms: int) -> None:
        """Bring the state to that of a batch. Called by each job of the batch, in any thread."""
