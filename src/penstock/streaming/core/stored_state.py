"""The engine's interface of a stream with state in the checkpoint location."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from penstock.storage import Storage
from penstock.streaming.core.base import BaseDStream

__all__ = ["StoredStateStream"]


class StoredStateStream(BaseDStream):
    """A stream with state. The engine calls these methods in this order; a batch's jobs wait.

    If one stateful stream depends on another, the other one is called first.
    """

    is_written_by_executors = True

    @property
    def stored_state(self) -> StoredStateStream:
        """This stream."""
        return self

    @abstractmethod
    def open_state(self, storage: Storage) -> None:
        """Find the existing state."""

    @abstractmethod
    def begin_state(
        self, first_ms: int, committed_ms: int | None, planned_ms: int
    ) -> Mapping[str, str]:
        """Prepare the state for batches from ``first_ms`` on; return settings to record with each.

        ``committed_ms`` is the time of the newest batch that is committed already, ``planned_ms``
        that of the newest one that was planned, -1 without one.
        """

    @abstractmethod
    def update_state(self, time_ms: int) -> None:
        """Update the state to that of a batch. Called by each job of the batch, in any thread."""
