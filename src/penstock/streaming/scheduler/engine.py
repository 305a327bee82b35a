"""The engine of one started program: generator, scheduler and receivers, wired and run together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.clock import Clock
from penstock.conf import StreamingSettings
from penstock.journal import CommitPolicy
from penstock.receivers import ReceiverSettings
from penstock.storage import open_storage
from penstock.storage.trust import check_trusted
from penstock.streaming import rdd_checkpoints
from penstock.streaming.graph import DStreamGraph
from penstock.streaming.listener import ListenerBus
from penstock.streaming.scheduler.batch_log import BatchLog
from penstock.streaming.scheduler.job_generator import JobGenerator
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from penstock.streaming.scheduler.receiver_tracker import ReceiverTracker

__all__ = ["Engine"]

_log = logging.getLogger(__name__)
_RECEIVER_STOP_S = 10.0
_LOCAL_POLL_MS = 200
_REMOTE_POLL_MS = 1000  # each poll is a request that an object store bills


class Engine:
    """Runs a graph on a checkpoint location, which it drives until it is stopped.

    Raises:
        ConcurrentDriverError: another driver uses the location.
        ConfigError, CheckpointError: see StreamingContext.start.
    """

    def __init__(
        self,
        sc: SparkContext,
        graph: DStreamGraph,
        location: CheckpointLocation,
        clock: Clock,
        bus: ListenerBus,
        settings: StreamingSettings,
        on_error: Callable[[BaseException], None],
    ) -> None:
        if settings.rate.first_rate is not None:
            _log.warning(
                "Rate limits and back pressure are not applied yet: every batch takes all that was"
                " received (docs/back-pressure.md)"
            )
        self._location = location
        self._graceful_timeout_s = (
            settings.graceful_stop_timeout_ms or 10 * graph.batch_interval_ms
        ) / 1000
        recovery = location.acquire()
        self._rerun = recovery.rerun
        try:
            journal = open_storage(f"{location.url}/journal")
            for stream in graph.receiver_inputs:
                stream.open_journal(journal)
            if stateful := graph.stateful:
                state = open_storage(f"{location.url}/state")
                check_trusted(location.url)
                check_trusted(state.url)
                for operator in stateful:
                    operator.open_state(state)
            log = BatchLog(
                location,
                recovery.next_batch_id,
                inputs=len(graph.inputs),
                retain=settings.min_batches_to_retain,
            )
            graph.check_offsets(log.ends)
            if graph.writes_rdds:
                rdd_checkpoints.prepare(sc, location.url)
            self._tracker = ReceiverTracker(
                sc, graph.receiver_inputs, _receiver_settings(settings, location), bus, on_error
            )
        except BaseException:
            location.release()
            raise
        self._scheduler = JobScheduler(
            sc,
            clock,
            bus,
            settings.concurrent_jobs,
            on_success=lambda job_set: self._generator.batch_done(job_set),
            on_end=lambda: self._generator.batch_ended(),
            on_error=on_error,
            find_damage=graph.find_damage,
        )
        self._generator = JobGenerator(
            graph,
            log,
            clock,
            concurrent=settings.concurrent_jobs,
            submit=self._scheduler.submit,
            on_error=on_error,
        )

    def start(self) -> None:
        """Run what was cut off, then start receivers and batches."""
        self._generator.start(self._rerun)
        self._tracker.start()

    def stop(self, *, graceful: bool) -> None:
        """Stop receivers, planning and jobs, in that order; graceful lets received data through."""
        deadline_s = time.monotonic() + self._graceful_timeout_s
        try:
            self._tracker.stop(_RECEIVER_STOP_S)
        except Exception:
            _log.exception("Receivers were stopped by force")

        def wait_idle() -> bool:
            return self._scheduler.wait_idle(max(0.0, deadline_s - time.monotonic()))

        if not self._generator.stop(wait_idle if graceful else None):
            _log.warning(
                "Stopped after %g s with batches unfinished; they run again after a "
                "restart (spark.streaming.gracefulStopTimeout)",
                self._graceful_timeout_s,
            )
        self._scheduler.stop()
        self._location.release()


def _receiver_settings(
    settings: StreamingSettings, location: CheckpointLocation
) -> ReceiverSettings:
    return ReceiverSettings(
        commit=CommitPolicy(block_interval_ms=settings.block_interval_ms),
        compression=settings.journal_compression,
        restart_delay_ms=settings.receiver_restart_delay_ms,
        poll_ms=_LOCAL_POLL_MS if location.url.startswith("file:") else _REMOTE_POLL_MS,
    )
