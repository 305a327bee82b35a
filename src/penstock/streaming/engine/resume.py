"""What a run continues from: the state and the batches of the runs before it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.checkpoint.rollback import START_ELSEWHERE
from penstock.clock import iso_time
from penstock.errors import LogGapError
from penstock.streaming.core.batch import Batch
from penstock.streaming.core.rdd_retention import needed_after
from penstock.streaming.engine.batch_log import BatchLog
from penstock.streaming.engine.graph import DStreamGraph

_log = logging.getLogger(__name__)


def restore(graph: DStreamGraph, log: BatchLog, again: Sequence[Batch]) -> None:
    """Continue an earlier run: its state, and the batches that the next ones need.

    ``again`` are the batches that run again, oldest first.

    Raises:
        CheckpointError: RDD checkpoints or state cannot be used; the error has the reason.
        LogGapError: the offset log lacks batches since which state has to be recomputed.
        PenstockError: records that should exist are missing.
    """
    for batch in again:
        graph.set_ranges(batch)
    done_ms = again[0].time_ms - 1 if again else max(log.previous_run_ms, 0)
    streams = list(graph.streams())
    for stream in streams:
        stream.restore_checkpoint_data(done_ms, log.previous_run_ms)
    needed = needed_after(streams, done_ms)
    recalled = (done_ms - stream.recall_ms for stream in graph.inputs)
    since_ms = min([done_ms, *needed.values(), *recalled])
    if since_ms >= done_ms:
        return
    earlier, complete = log.read_since(since_ms)
    if not complete:
        first_ms = earlier[0].time_ms if earlier else done_ms
        restarts = [s.restarts_from(needed[s], done_ms) for s in streams if s.must_checkpoint]
        _note_gone(min([done_ms, *restarts]), since_ms, first_ms)
    for batch in earlier:
        if batch not in again:
            graph.recall(batch, needed)


def _note_gone(state_ms: int, since_ms: int, first_ms: int) -> None:
    """Warn that needed batches before ``first_ms`` are missing; raise if state needs them."""
    if state_ms < first_ms:
        raise LogGapError(
            f"state was kept at {iso_time(state_ms)}, and the batches after it, before "
            f"{iso_time(first_ms)}, are no longer in the offset log",
            operation="recover state",
            hint=f"restore the offset log from a backup, or {START_ELSEWHERE}",
        )
    _log.warning(
        "Windows need batches since %s, and the batches before %s are no longer in the "
        "offset log; windows that need them lack their records",
        iso_time(since_ms),
        iso_time(first_ms),
    )
