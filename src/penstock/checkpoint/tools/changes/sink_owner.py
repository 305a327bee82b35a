"""Whether the log of a file sink is of a query's output. Pure but for its reads.

Every query counts its batches from 0, and the sink's log holds no id of a query. But a batch writes
its files between its entry of the offset log and its commit, and the sink's entry names their
times. So the newest batches that both logs have tell: where their files are from another time, it
is another query's. Compacted entries are of many batches, and are not asked.

Queries whose batches of the same id ran at the same time cannot be told apart.
"""

from __future__ import annotations

from itertools import islice

from penstock.checkpoint.log_format import is_time_ms
from penstock.checkpoint.tools.batches import Batch
from penstock.checkpoint.tools.changes.sink_log import SinkLog
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.storage import local_root

__all__ = ["find_stranger"]

_COMPARED = 2
"""So many batches: the end of the newest may not be known; see ``_window``."""
_LOCAL_SLACK_MS = 2_000
_REMOTE_SLACK_MS = 60_000
"""How far the clock of a store may be off that of the driver."""


def find_stranger(checkpoint: Checkpoint, sink: SinkLog) -> str | None:
    """Return why a sink's log is not the query's; None if nothing speaks against it.

    Raises:
        CheckpointError: an entry of the sink's log is damaged.
        StorageError: an entry cannot be read.
    """
    is_local = local_root(sink.storage.url) is not None
    slack = _LOCAL_SLACK_MS if is_local else _REMOTE_SLACK_MS
    windows = (
        (batch_id, times, window)
        for batch_id in reversed(checkpoint.done)
        if (times := sink.file_times(batch_id)) and (window := _window(checkpoint, batch_id))
    )
    compared = list(islice(windows, _COMPARED))
    for batch_id, times, (begin, end) in compared:
        if min(times) < begin - slack or max(times) > end + slack:
            return (
                f"its files of batch {batch_id} were not written while the query ran that batch:"
                " this is not the query's output"
            )
    planned = max(checkpoint.planned, default=-1)
    if sink.newest > planned and not compared:
        return (
            f"its log ends with batch {sink.newest}, the query has planned up to {planned}, and no"
            " batch that both have tells that this is the query's output"
        )
    return None


def _window(checkpoint: Checkpoint, batch_id: int) -> tuple[int, int] | None:
    """Return when a batch was planned, and a time when it was done; None if that is not told.

    A copy of the location may have lost the time of the commit, which is later then; of all but
    the newest batch, the next one's plan tells.
    """
    found = {each.batch_id: each for each in checkpoint.batches([batch_id, batch_id + 1])}
    begin = _planned_ms(found.get(batch_id))
    ends = [_planned_ms(found.get(batch_id + 1)), found[batch_id].committed_ms]
    known = [each for each in ends if each is not None]
    return (begin, min(known)) if begin is not None and known else None


def _planned_ms(batch: Batch | None) -> int | None:
    metadata = batch.offsets.metadata if batch is not None and batch.offsets is not None else None
    time_ms = metadata.get("batchTimestampMs") if metadata else None
    return time_ms if is_time_ms(time_ms) and isinstance(time_ms, int) else None
