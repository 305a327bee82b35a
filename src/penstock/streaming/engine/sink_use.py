"""What exactly-once sinks ask of a running program: ``exactly_once.Run``.

Invariant: before an output writes to such a sink for the first time, the location says so, durably.
So a tool knows that the sink takes no earlier batch again, and a start that the output has to stay.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.checkpoint.batch_plan import plan_of
from penstock.checkpoint.offset_log import OffsetLog
from penstock.checkpoint.used_sinks import note_sink_of, outputs_with_sinks
from penstock.conf import StreamingSettings, check_exactly_once
from penstock.errors import RecoveryMismatchError
from penstock.storage import Storage


class SinkUse:
    """The run of one output, which may write under other names. Threads may share it.

    Args:
        storage: the checkpoint location.
        settings: the program's.
        output: the output's name in the program.
    """

    def __init__(self, storage: Storage, settings: StreamingSettings, output: str) -> None:
        self._storage = storage
        self._settings = settings
        self._output = output
        self._offsets = OffsetLog(storage)
        self._is_noted = False

    def use_sink(self, output: str, sink: str) -> None:
        """See Run."""
        check_exactly_once(output, self._settings)
        if not self._is_noted:
            note_sink_of(self._storage, self._output)
            self._is_noted = True

    def plan_of(self, batch_id: int) -> str | None:
        """See Run."""
        entry = self._offsets.get(batch_id)
        return None if entry is None else plan_of(entry)


def check_outputs_stay(storage: Storage, outputs: Collection[str]) -> None:
    """Check that a program has each output that has written to an exactly-once sink.

    Raises:
        RecoveryMismatchError: it lacks one.
        StorageError: the location cannot be listed.
    """
    for name in outputs_with_sinks(storage):
        if name not in outputs:
            raise RecoveryMismatchError(
                f"output {name!r} has written to an exactly-once sink, and is not in the program "
                f"(its outputs: {', '.join(map(repr, outputs)) or 'none'}); under another name "
                "the sink would write batches that run again a second time",
                operation="recover",
                ids={"output": name},
                hint=f"give the output that continues name={name!r}; to end it, let its function "
                "do nothing, or begin with a new checkpoint location",
            )
