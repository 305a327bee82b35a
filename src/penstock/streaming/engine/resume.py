"""What a run continues from: the time of its first batch, and the batches of the runs before it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.checkpoint.rollback import START_ELSEWHERE
from penstock.clock import iso_time
from penstock.errors import LogGapError
from penstock.streaming.core.batch import Batch
from penstock.streaming.engine.batch_log import BatchLog
from penstock.streaming.engine.due_ticks import DueTick
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.engine.recurring_timer import RecurringTimer

_log = logging.getLogger(__name__)


def first_tick(log: BatchLog, timer: RecurringTimer, now_ms: int, interval_ms: int) -> int:
    """Return the time of the first batch: after the previous run, regardless of the clock."""
    newest_ms = log.previous_run_ms
    first_ms = timer.first_tick_after(max(now_ms, newest_ms), log.zero_ms or 0)
    if first_ms - now_ms > interval_ms:
        _log.warning(
            "The newest batch time is %s, %.0f s ahead of the clock of this machine, which "
            "was ahead once, or is behind now. Batches continue after it, one every %g s, "
            "with times ahead of the clock; windows use these times",
            iso_time(newest_ms),
            (newest_ms - now_ms) / 1000,
            interval_ms / 1000,
        )
    return first_ms


def ticks_to_plan(
    graph: DStreamGraph, log: BatchLog, newest_ms: int, next_ms: int, now_ms: int
) -> list[DueTick]:
    """Return the ticks between the newest batch and ``next_ms`` that need their own batches.

    See docs/adr/0007-missed-slides.md.
    """
    if newest_ms < 0:  # there is no batch that any tick would follow
        return []
    interval_ms = graph.batch_interval_ms
    first_ms = next_ms - (next_ms - newest_ms - 1) // interval_ms * interval_ms
    passed = range(first_ms, next_ms, interval_ms)
    missed = graph.missed_ticks(log.ends, passed) if passed else []
    if missed:
        _log.info(
            "%d batches are run for windows that ended between %s and %s, while no "
            "batches were planned",
            len(missed),
            iso_time(newest_ms),
            iso_time(next_ms),
        )
    return [DueTick(time_ms, now_ms, is_missed=True) for time_ms in missed]


def restore(graph: DStreamGraph, log: BatchLog, again: Sequence[Batch]) -> None:
    """Continue the previous run: its state, its commits, and the batches still needed.

    Raises:
        LogGapError: the offset log lacks batches since which state has to be recomputed.
    """
    for batch in again:
        graph.begin(batch)
    done_ms = again[0].time_ms - 1 if again else max(log.previous_run_ms, 0)
    graph.restore_checkpoint_data(done_ms, log.previous_run_ms)
    needed_after_ms = graph.batches_needed_after(done_ms)
    if needed_after_ms >= done_ms:
        return
    earlier, complete = log.read_since(needed_after_ms)
    if not complete:
        _note_gone(graph, earlier[0].time_ms if earlier else done_ms, done_ms)
    graph.restore([batch for batch in earlier if batch not in again], done_ms)


def _note_gone(graph: DStreamGraph, first_ms: int, done_ms: int) -> None:
    """Warn that needed batches before ``first_ms`` are missing; raise if state needs them."""
    if (state_ms := graph.state_begins_at(done_ms)) < first_ms:
        raise LogGapError(
            f"state was kept at {iso_time(state_ms)}, and the batches after it, before "
            f"{iso_time(first_ms)}, are no longer in the offset log",
            operation="recover state",
            hint=f"restore the offset log from a backup, or {START_ELSEWHERE}",
        )
    _log.warning(
        "Windows need batches since %s, and the batches before %s are no longer in the "
        "offset log; windows that need them lack their records",
        iso_time(graph.batches_needed_after(done_ms)),
        iso_time(first_ms),
    )
