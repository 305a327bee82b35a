"""The engine of one started program: connects and runs generator, scheduler and receivers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation, RecoveryPlan
from penstock.checkpoint.batch_records import driver_conf
from penstock.checkpoint.query_runs import note_failure
from penstock.clock import Clock, SteadyClock
from penstock.conf import StreamingSettings
from penstock.driver.feed import receiver_settings
from penstock.driver.spark import check_shared, has_executors
from penstock.driver.tracker import ReceiverTracker
from penstock.errors import BatchFailedError, ConcurrentDriverError, PenstockError, ReceiverError
from penstock.rate import RATES_KEY, RateOverride, RateOverrides
from penstock.root_cause import root_cause
from penstock.storage.trust import check_trusted
from penstock.streaming.core.events import StreamingListenerStreamingStarted
from penstock.streaming.core.listener import ListenerBus
from penstock.streaming.core.rdd_checkpoints import RddCheckpoints
from penstock.streaming.core.recorded_conf import settle_conf
from penstock.streaming.engine.batch_log import BatchLog
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.engine.job_generator import JobGenerator
from penstock.streaming.engine.job_scheduler import JobScheduler
from penstock.streaming.engine.jobs import JobSet
from penstock.streaming.engine.rate_manager import RateManager
from penstock.streaming.engine.receiver_events import ReceiverEvents
from penstock.streaming.engine.sink_use import SinkUse, check_outputs_stay
from penstock.streaming.inputs.input import InputContext, InputDStream
from penstock.streaming.operations.outputs import OutputOperation
from penstock.streaming.recovery.match import written_before
from penstock.streaming.recovery.run import RunCheckpoints

_log = logging.getLogger(__name__)
_RECEIVER_STOP_S = 10.0
_LISTED_WITHIN_S = 2.0
"""Before a job starts, the log is listed again if the last listing is older."""
_GO_ON = (
    ". To go on with later batches after one that failed, in a program without exactly-once "
    "outputs, set spark.penstock.onBatchFailure=continue"
)


class Engine:
    """Runs a graph on a checkpoint location until it is stopped.

    Args:
        on_error: called with errors that the program survives.
        on_end: called with an error that ends the program; must stop the engine, in a separate
            thread, and return whether this is the first such error.
        graph_checkpoints: writes graph checkpoints or not; the engine starts and stops it.
        name: the program's, for people.

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
        on_end: Callable[[BaseException], bool],
        graph_checkpoints: RunCheckpoints,
        name: str | None = None,
    ) -> None:
        self._on_end = on_end
        self._driver = driver_conf(sc.uiWebUrl, name)
        on_batch_error = on_error if settings.on_batch_failure == "continue" else self._end_by_batch
        self._graph = graph
        self._location = location
        self._bus = bus
        self._clock = clock
        self._graceful_timeout_s = (
            settings.graceful_stop_timeout_ms or 10 * graph.batch_interval_ms
        ) / 1000
        recovery = location.acquire(settings.min_batches_to_retain)
        try:
            _check_location(sc, graph, location)
            run = SinkUse(location.storage, settings)
            log = _open_log(graph, location, recovery, run)
            if graph.writes_rdds:
                rdds = RddCheckpoints(sc, location.storage, log.previous_run_ms)
                graph.open_rdd_checkpoints(rdds)
            log.record(settle_conf(sc, log.recorded_conf, graph.batch_interval_ms))
            log.record(self._driver)
            self._rates = RateManager(
                graph.inputs,
                graph.batch_interval_ms,
                settings.rate,
                dict(sc.getConf().getAll()),
                RateOverrides(location.storage),
                log.recorded_conf.get(RATES_KEY),
            )
            self._receiver_settings = receiver_settings(settings, location.url)
            poll_ms = self._receiver_settings.poll_ms
            self._tracker = ReceiverTracker(
                sc,
                [feed for stream in graph.inputs if (feed := stream.feed) is not None],
                self._receiver_settings,
                ReceiverEvents(bus, poll_ms, {each.name: each.id for each in graph.inputs}),
                on_error,
                self._rates.receive_limit,
            )
            self._wire(sc, log, settings, on_batch_error, graph_checkpoints)
        except BaseException:
            _close([*graph.inputs, *graph.outputs])
            location.release()
            raise
        self._graph_checkpoints = graph_checkpoints

    def _wire(
        self,
        sc: SparkContext,
        log: BatchLog,
        settings: StreamingSettings,
        on_batch_error: Callable[[BaseException], None],
        graph_checkpoints: RunCheckpoints,
    ) -> None:
        """Connect who plans batches with who runs their jobs."""
        steady = SteadyClock(self._clock)
        self._scheduler = JobScheduler(
            sc,
            steady,
            self._bus,
            settings.concurrent_jobs,
            check_sole=lambda: log.confirm(_LISTED_WITHIN_S),
            on_success=self._batch_done,
            on_failure=lambda job_set: self._generator.batch_failed(job_set),
            on_end=lambda job_set: self._generator.batch_ended(job_set),
            on_batch_error=on_batch_error,
            on_fenced=self._end,
            find_damage=self._graph.find_damage,
        )
        self._generator = JobGenerator(
            self._graph,
            log,
            self._rates,
            self._clock,
            steady,
            concurrent=settings.concurrent_jobs,
            submit=self._scheduler.submit,
            checkpoint_graph=graph_checkpoints.write,
            supersede_graph=graph_checkpoints.supersede,
            on_batch_error=on_batch_error,
            on_error=self._end,
        )

    @property
    def location_url(self) -> str:
        """The checkpoint location."""
        return self._location.url

    def start(self) -> None:
        """Run interrupted batches again, then start receivers and batches."""
        self._bus.post(StreamingListenerStreamingStarted(self._clock.time_ms()))
        self._graph_checkpoints.start(self._location.storage)
        self._generator.start()
        self._tracker.start()
        self._rates.start(self._tracker.limit, self._receiver_settings.poll_ms)

    def override_rate(self, stream: str, change: Callable[[RateOverride], RateOverride]) -> None:
        """Change the limit of an input; see RateManager.override."""
        self._rates.override(stream, change)

    def stop(self, *, graceful: bool, patience_s: float = 0.0) -> None:
        """Stop receivers, planning and jobs, in that order; graceful processes received data first.

        Running jobs may take ``patience_s`` before they are cancelled.
        """
        deadline_s = time.monotonic() + self._graceful_timeout_s
        self._rates.stop()
        try:
            self._tracker.stop(_RECEIVER_STOP_S)
        except ReceiverError as error:
            _log.warning("Receivers were stopped by force: %s", error)
        except Exception:
            _log.exception("Receivers were not stopped")

        def wait_idle() -> bool:
            return self._scheduler.wait_idle(max(0.0, deadline_s - time.monotonic()))

        if not self._generator.stop(wait_idle if graceful else None):
            _log.warning(
                "Stopped after %g s with batches unfinished; they run again after a "
                "restart (spark.streaming.gracefulStopTimeout)",
                self._graceful_timeout_s,
            )
        running = self._scheduler.stop(patience_s=patience_s)
        self._graph_checkpoints.stop()
        try:
            self._generator.close()
        except Exception as error:  # the next run releases the data that this one does not
            _log.warning("Data that the last batches no longer need is kept: %s", error)
        finally:
            _close(self._graph.inputs)
            self._release_location(running)

    def _release_location(self, running: list[threading.Thread]) -> None:
        """Release the driver lock when the last job has ended: until then the job may write."""

        def release() -> None:
            _close(self._graph.outputs)
            self._location.release()

        if not running:
            release()
            return

        def wait() -> None:
            for thread in running:
                thread.join()
            release()

        if threading.current_thread() not in running:
            _log.warning(
                "%d job(s) did not end when they were cancelled; checkpoint location %s stays "
                "locked until they do",
                len(running),
                self._location.url,
            )
        threading.Thread(target=wait, name="penstock-release", daemon=True).start()

    def _end_by_batch(self, error: BaseException) -> None:
        self._end(error, _GO_ON)

    def _end(self, error: BaseException, way_on: str = "") -> None:
        """End the program because of an error: plan and run nothing more, and request a stop.

        It is logged, as not every program calls ``awaitTermination``, which raises it.
        """
        self._generator.halt()
        self._scheduler.halt()
        if self._on_end(error):
            _log.error("The program stops, and runs no more batches: %s%s", error, way_on)
            if not isinstance(error, ConcurrentDriverError):  # another driver's location now
                found = error.__cause__ if isinstance(error, BatchFailedError) else error
                why = root_cause(found or error)
                batch_id = error.ids.get("batch") if isinstance(error, PenstockError) else None
                note_failure(self._location.storage, self._driver, batch_id, why)

    def _batch_done(self, job_set: JobSet) -> None:
        self._generator.batch_done(job_set)
        self._rates.batch_done(job_set)


def _check_location(sc: SparkContext, graph: DStreamGraph, location: CheckpointLocation) -> None:
    if graph.is_written_by_executors and has_executors(sc):
        check_shared(sc, location.storage)
    if graph.writes_rdds:
        check_trusted(location.url)


def _open_log(
    graph: DStreamGraph,
    location: CheckpointLocation,
    recovery: RecoveryPlan,
    run: SinkUse,
) -> BatchLog:
    """Return the log of the program's batches; its inputs and outputs are open then."""
    log = BatchLog(
        location,
        recovery,
        inputs=[stream.name for stream in graph.inputs],
        operators=graph.operators.all(),
        outputs={output.name: output.exactly_once for output in graph.outputs},
        told=[output.name for output in graph.outputs if output.is_known_by_name],
        unnamed=graph.unnamed_parts(),
    )
    graph.check_offsets(log.ends)
    check_outputs_stay(location.storage, [output.name for output in graph.outputs])
    url, location_id = location.url, location.read_id()
    storage, journal = location.storage, location.storage.open_folder("journal")
    for output in graph.outputs:
        known = (log.recorded_conf, recovery.rerun, output.name, output.exactly_once)
        output.open(location_id, written_before(*known), run.of(output.name))
    for index, (stream, start) in enumerate(zip(graph.inputs, log.ends, strict=True)):
        first_offset = partial(log.first_offset, index)
        oldest_start = partial(log.oldest_start, index)
        context = InputContext(
            journal, storage, location_id, url, start, first_offset, oldest_start
        )
        stream.open(context)
        first_offset(stream.initial_offset)
    return log


def _close(ends: Iterable[InputDStream | OutputOperation]) -> None:
    for each in ends:
        try:
            each.close()
        except Exception as error:
            _log.warning("%s was not closed: %s", each.name, error)
