"""The engine of one started program: connects and runs generator, scheduler and receivers."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial

from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation, RecoveryPlan
from penstock.checkpoint.batch_plan import plan_of
from penstock.checkpoint.batch_records import driver_conf
from penstock.checkpoint.offset_log import OffsetLog
from penstock.checkpoint.used_sinks import note_sink_of, outputs_with_sinks
from penstock.clock import Clock, SteadyClock
from penstock.conf import StreamingSettings, check_exactly_once
from penstock.driver.feed import receiver_settings
from penstock.driver.shared_location import check_shared
from penstock.driver.spark import has_executors
from penstock.driver.tracker import ReceiverTracker
from penstock.errors import ReceiverError, RecoveryMismatchError
from penstock.rate import RATES_KEY, RateOverride, RateOverrides
from penstock.storage import Storage
from penstock.storage.trust import check_trusted
from penstock.streaming.core.events import StreamingListenerStreamingStarted
from penstock.streaming.core.listener import ListenerBus
from penstock.streaming.core.rdd_checkpoints import RddCheckpoints
from penstock.streaming.core.recorded_conf import settle_conf
from penstock.streaming.engine.batch_lifecycle import BatchLifecycle
from penstock.streaming.engine.batch_log import BatchLog
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.engine.job_generator import JobGenerator
from penstock.streaming.engine.job_scheduler import JobScheduler
from penstock.streaming.engine.program_end import ProgramEnd
from penstock.streaming.engine.rate_manager import RateManager
from penstock.streaming.engine.receiver_events import ReceiverEvents
from penstock.streaming.inputs.input import InputContext, InputDStream
from penstock.streaming.operations.outputs import OutputOperation
from penstock.streaming.recovery.match import written_before
from penstock.streaming.recovery.run import RunCheckpoints

_log = logging.getLogger(__name__)
_RECEIVER_STOP_S = 10.0


class Engine:
    """Runs a graph on a checkpoint location until it is stopped.

    Args:
        on_error: called with errors that the program survives.
        on_end: called with an error that ends the program; must stop the engine, in a separate
            thread, and return whether this is the first such error.
        graph_checkpoints: writes graph checkpoints or not; the engine starts and stops it.
        name: the program's display name.

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
        driver = driver_conf(sc.uiWebUrl, name)
        survives_batches = settings.on_batch_failure == "continue"
        end = ProgramEnd(location.storage, driver, survives_batches, on_error, on_end)
        steady = SteadyClock(clock)
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
            log = _open_log(graph, location, recovery, settings)
            if graph.writes_rdds:
                rdds = RddCheckpoints(sc, location.storage, log.previous_run_ms)
                graph.open_rdd_checkpoints(rdds)
            log.add_conf(settle_conf(sc, log.recorded_conf, graph.batch_interval_ms))
            log.add_conf(driver)
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
            self._batches = BatchLifecycle(
                graph, location, log, self._rates, graph_checkpoints, steady, end
            )
            self._scheduler = JobScheduler(
                sc, steady, bus, self._batches, end, settings.concurrent_jobs
            )
            self._generator = JobGenerator(
                self._batches,
                self._scheduler,
                end,
                clock,
                steady,
                interval_ms=graph.batch_interval_ms,
                merge_ticks=all(stream.merges_ticks for stream in graph.inputs),
                concurrent=settings.concurrent_jobs,
            )
        except BaseException:
            _close([*graph.inputs, *graph.outputs])
            location.release()
            raise
        self._graph_checkpoints = graph_checkpoints

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
        if not self._generator.stop(deadline_s if graceful else None):
            _log.warning(
                "Stopped after %g s with batches unfinished; they run again after a "
                "restart (spark.streaming.gracefulStopTimeout)",
                self._graceful_timeout_s,
            )
        running = self._scheduler.stop(patience_s=patience_s)
        self._graph_checkpoints.stop()
        try:
            self._batches.close()
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


def _check_location(sc: SparkContext, graph: DStreamGraph, location: CheckpointLocation) -> None:
    if graph.is_written_by_executors and has_executors(sc):
        check_shared(sc, location.storage)
    if graph.writes_rdds:
        check_trusted(location.url)


def _open_log(
    graph: DStreamGraph,
    location: CheckpointLocation,
    recovery: RecoveryPlan,
    settings: StreamingSettings,
) -> BatchLog:
    """Return the log of the program's batches; its inputs and outputs are open then."""
    log = BatchLog(
        location,
        recovery,
        inputs=[stream.name for stream in graph.inputs],
        operators=graph.operators.all(),
        outputs={output.name: output.exactly_once for output in graph.outputs},
        told=[output.name for output in graph.outputs if output.is_known_by_name],
        unnamed=_unnamed_parts(graph),
    )
    graph.check_offsets(log.ends)
    _check_outputs_stay(location.storage, [output.name for output in graph.outputs])
    url, location_id = location.url, location.read_id()
    storage, journal = location.storage, location.storage.open_folder("journal")
    for output in graph.outputs:
        known = (log.recorded_conf, recovery.rerun, output.name, output.exactly_once)
        run = _SinkUse(storage, settings, output.name)
        output.open(location_id, written_before(*known), run)
    for index, (stream, start) in enumerate(zip(graph.inputs, log.ends, strict=True)):
        first_offset = partial(log.first_offset, index)
        oldest_start = partial(log.oldest_start, index)
        context = InputContext(
            journal, storage, location_id, url, start, first_offset, oldest_start
        )
        stream.open(context)
        first_offset(stream.initial_offset)
    return log


class _SinkUse:
    """The run of one output for exactly-once sinks: ``exactly_once.Run``. Threads may share it.

    The output may write under other names. Invariant: before it writes to such a sink for the first
    time, the location says so, durably. So a tool knows that the sink takes no earlier batch again,
    and a start that the output has to stay.

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


def _check_outputs_stay(storage: Storage, outputs: Collection[str]) -> None:
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


def _unnamed_parts(graph: DStreamGraph) -> dict[str, list[str]]:
    """Return the names that the program did not give, by role; warn where they are not enough.

    Two parts of one kind are told apart by their order alone.
    """
    operators = graph.operators.all()
    unnamed = {
        "input": [each.name for each in graph.inputs if not each.is_named],
        "operator": [o.name for o in operators if not o.is_named],
        "output": [o.name for o in graph.outputs if o.is_known_by_name and not o.is_named],
    }
    for role, names in unnamed.items():
        kinds = Counter(name.rpartition("-")[0] for name in names)
        several = [name for name in names if kinds[name.rpartition("-")[0]] > 1]
        if several:
            _log.warning(
                "%ss without names of their own: %s. A restart tells those of one kind apart "
                "by their order in the program alone; to be independent of it, give each this "
                "name (name=...)",
                role.capitalize(),
                ", ".join(several),
            )
    return unnamed


def _close(ends: Iterable[InputDStream | OutputOperation]) -> None:
    for each in ends:
        try:
            each.close()
        except Exception as error:
            _log.warning("%s was not closed: %s", each.name, error)
