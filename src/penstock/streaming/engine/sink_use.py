"""What exactly-once sinks ask of a running program: ``exactly_once.Run``.

Invariant: before an output writes to such a sink for the first time, the location says so, durably.
So a tool knows that the sink takes no earlier batch again.
"""

from __future__ import annotations

import threading

from penstock.checkpoint.batch_plan import plan_of
from penstock.checkpoint.offset_log import OffsetLog
from penstock.checkpoint.used_sinks import note_sink_of
from penstock.conf import StreamingSettings, check_exactly_once
from penstock.storage import Storage

__all__ = ["SinkUse"]


class SinkUse:
    """A run of a program. Thread-safe.

    Args:
        storage: the checkpoint location.
        settings: the program's.
    """

    def __init__(self, storage: Storage, settings: StreamingSettings) -> None:
        self._storage = storage
        self._settings = settings
        self._offsets = OffsetLog(storage)
        self._noted: set[str] = set()
        self._lock = threading.Lock()

    def use_sink(self, output: str, sink: str) -> None:
        """See Run."""
        check_exactly_once(output, self._settings)
        with self._lock:
            if output not in self._noted:
                note_sink_of(self._storage, output)
                self._noted.add(output)

    def plan_of(self, batch_id: int) -> str | None:
        """See Run."""
        entry = self._offsets.get(batch_id)
        return None if entry is None else plan_of(entry)
