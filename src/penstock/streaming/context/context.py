"""StreamingContext: the entry point of a streaming program.

Same names and meaning as ``pyspark.streaming.StreamingContext``; the engine is penstock's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from pyspark import SparkConf, SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.clock import Clock, SystemClock
from penstock.conf import (
    StreamingSettings,
    check_exactly_once,
    session_setting_names,
    settings_of,
    settings_without_effect,
)
from penstock.driver.spark import hadoop_location
from penstock.errors import ConfigError, StreamingError
from penstock.model import check_name, shown
from penstock.rate import RateEstimator
from penstock.shutdown import Shutdown
from penstock.streaming.context.life_cycle import LifeCycle, State
from penstock.streaming.context.rate_control import RateControl
from penstock.streaming.context.run_location import RunLocation, configured_location
from penstock.streaming.core.listener import ListenerBus, StreamingListener
from penstock.streaming.core.session_conf import SessionConf
from penstock.streaming.engine.engine import Engine
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.inputs.sources import StreamSources
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.location_storage import load_file_manager, open_location
from penstock.streaming.recovery.recreate import (
    find_checkpoint,
    require_checkpoint,
    restore_spark_context,
)
from penstock.streaming.recovery.run import (
    NoGraphCheckpoints,
    RunCheckpoints,
    keep_graph,
)
from penstock.workers import use_this_python

if TYPE_CHECKING:
    from penstock.streaming.context.monitoring import Monitoring

_log = logging.getLogger(__name__)

_PATIENCE_S = 10.0
"""How long jobs may continue after Ctrl-C. Spark prints a long report for each cancelled one."""
_STOPPING = (
    "stopping. Received records are kept, and unfinished batches run again at the next start"
)
_Recover = Literal["graph", "program"]
"""The source of the graph after a restart: a graph checkpoint, or the program."""


class StreamingContext(StreamSources, RateControl):
    """A streaming program: inputs, operations, outputs, and the engine that runs them.

    Args:
        sparkContext: where batches and receivers run; or a checkpoint location, from whose newest
            graph checkpoint the program is recreated, SparkContext and batch interval included.
        batchDuration: the batch interval in seconds; fractions are allowed, to the millisecond.
        clock: the clock of the batches; tests give ``penstock.testing.ManualClock``.
        queryName: the program's name under ``spark.sql.streaming.checkpointLocation``, where it
            finds its checkpoint location again if ``checkpoint`` is not called.

    Raises:
        ConfigError: what is given is not a SparkContext, the duration, the name or a
            ``spark.streaming.*`` setting is wrong, the rate estimator that they name cannot be
            made, or others can write the checkpoint location.
        CheckpointError: there is no graph checkpoint, or none that can be read.
    """

    _active: ClassVar[StreamingContext | None] = None
    _active_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        sparkContext: SparkContext | str,
        batchDuration: float | None = None,
        *,
        clock: Clock | None = None,
        queryName: str | None = None,
    ) -> None:
        self._query_name = None if queryName is None else check_name("query", queryName)
        if isinstance(sparkContext, str):
            if batchDuration is not None:
                raise ConfigError(
                    "StreamingContext(path) takes the batch interval from the checkpoint, and no "
                    "second argument",
                    operation="make StreamingContext",
                    path=sparkContext,
                    hint="leave it out: a hadoopConf has no place here, a store's driver takes "
                    "credentials and endpoints from its environment",
                )
            self._recreate(require_checkpoint(sparkContext), sparkContext, clock)
        else:
            self._set_up(sparkContext, DStreamGraph(_interval_ms(batchDuration)), clock)
            if self._settings.checkpoint_directory is not None:
                self.checkpoint(self._settings.checkpoint_directory)

    def _set_up(self, sc: SparkContext, graph: DStreamGraph, clock: Clock | None) -> None:
        _check_spark_context(sc)
        self._sc = sc
        use_this_python(sc)
        self._clock = clock or SystemClock()
        session = SessionConf(sc)
        sql = {name: session.explicit(name) for name in session_setting_names()}
        conf = {**settings_of(sc.getConf()), **{k: v for k, v in sql.items() if v is not None}}
        self._settings = StreamingSettings.from_conf(conf)
        for name, meant in settings_without_effect(conf).items():
            hint = f"did you mean {meant}?" if meant else "docs/settings.md lists those that have"
            _log.warning("The setting %s has no effect: %s", name, hint)
        manager = self._settings.checkpoint_file_manager
        self._file_manager = None if manager is None else load_file_manager(manager)
        self.graph = graph
        if self._settings.rate.backpressure_enabled:
            RateEstimator.create(
                conf, graph.batch_interval_ms
            )  # refuses an estimator that cannot be created
        self._bus = ListenerBus()
        self._checkpoint_dir: str | None = None
        self._recover: _Recover = "graph"
        self._recreated_from: str | None = None
        self._location = RunLocation(None)
        self._life = LifeCycle()
        self._start_lock = threading.RLock()
        self._engine: Engine | None = None
        self._monitoring: Monitoring | None = None
        graceful = self._settings.stop_gracefully_on_shutdown
        self._shutdown = Shutdown(
            lambda: self._stop(graceful, _PATIENCE_S),
            "stopping gracefully" if graceful else _STOPPING,
            graceful=graceful,
        )

    def _recreate(self, checkpoint: Checkpoint, directory: str, clock: Clock | None) -> None:
        graph: DStreamGraph = checkpoint.graph.load()
        self._set_up(restore_spark_context(checkpoint.conf), graph, clock)
        # The location where it was found, not where it was written: offsets are beside it, also in
        # a copy.
        self._checkpoint_dir = self._recreated_from = str(self._locate(directory))
        graph.attach(self)

    @property
    def sparkContext(self) -> SparkContext:
        """Return the SparkContext of this program."""
        return self._sc

    @property
    def conf(self) -> SparkConf:
        """Return a copy of the SparkContext's configuration."""
        return self._sc.getConf()

    @property
    def clock(self) -> Clock:
        """Return the clock of the batches."""
        return self._clock

    @property
    def settings(self) -> StreamingSettings:
        """Return the settings of this program."""
        return self._settings

    @classmethod
    def getActive(cls) -> StreamingContext | None:
        """Return the context that was started and not stopped in this process, None without one."""
        return cls._active

    @classmethod
    def getActiveOrCreate(
        cls,
        checkpointPath: str | None,
        setupFunc: Callable[[], StreamingContext],
        recover: _Recover = "graph",
    ) -> StreamingContext:
        """Return the active context, or else what ``getOrCreate`` returns.

        Without a ``checkpointPath`` a new context is what ``setupFunc`` returns.
        """
        active = cls.getActive()
        if active is not None:
            return active
        if checkpointPath is None:
            return setupFunc()
        return cls.getOrCreate(checkpointPath, setupFunc, recover)

    @classmethod
    def getOrCreate(
        cls,
        checkpointPath: str,
        setupFunc: Callable[[], StreamingContext],
        recover: _Recover = "graph",
    ) -> StreamingContext:
        """Return the context that continues from the checkpoint location.

        Inputs continue at their offsets, and interrupted batches run again, in both modes.

        Args:
            checkpointPath: the checkpoint location: a path or an fsspec URL.
            setupFunc: creates the program: its context and streams.
            recover: the source of the graph. "graph", as in Spark: the newest graph checkpoint,
                with the SparkContext's settings; ``setupFunc`` is called only if none exists.
                "program": ``setupFunc``, which is called each time, so that the code may change;
                inputs and stateful operators are found by their names.

        Raises:
            CheckpointError: there are graph checkpoints, and none can be read.
            ConfigError: the location cannot be used, or others can write it; see ``checkpoint``.
        """
        if recover not in ("graph", "program"):
            raise ConfigError(
                f"recover is {shown(recover)}",
                operation="getOrCreate",
                hint="give 'graph' or 'program'",
            )
        if recover == "graph":
            checkpoint = find_checkpoint(checkpointPath)
            if checkpoint is not None:
                recreated = cls.__new__(cls)
                recreated._query_name = None  # it has a location
                recreated._recreate(checkpoint, checkpointPath, clock=None)
                return recreated
        ssc = setupFunc()
        if not isinstance(ssc, StreamingContext):
            raise ConfigError(
                f"setupFunc returned {ssc!r}",
                operation="getOrCreate",
                hint="end it with 'return ssc', the StreamingContext that it creates",
            )
        ssc.checkpoint(checkpointPath)
        ssc._recover = recover
        return ssc

    # -- set-up --

    def remember(self, duration: float) -> None:
        """Keep every stream's RDDs and their records for at least that many seconds.

        ``DStream.slice`` returns them. RDDs that windows need are always kept.

        Raises:
            ConfigError: the duration is not a positive number.
            StreamingError: it was set before, or the context was started.
        """
        self.check_changeable("set how long to remember")
        self.graph.remember(_interval_ms(duration, "remember duration"))

    def checkpoint(self, directory: str) -> None:
        """Keep offsets, commits, journal and graph under ``directory`` (a path or an fsspec URL).

        On a cluster, driver and executors must see the same files there. Without this call the
        location is ``spark.sql.streaming.checkpointLocation/queryName`` if that setting is set.

        Raises:
            ConfigError: it cannot be written, or no storage is known for the URL.
        """
        self.check_changeable("set the checkpoint location")
        location = self._locate(directory)
        open_location(location, self._file_manager)
        self._checkpoint_dir = str(location)

    def addStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Add a listener for events of batches and receivers."""
        self._bus.add(streamingListener)

    def check_changeable(self, what: str) -> None:
        """Raise StreamingError when the program was started: it cannot change any more."""
        self._life.check_changeable(what)

    def check_extensible(self, what: str) -> None:
        """Raise StreamingError if a graph checkpoint defines inputs, streams and outputs."""
        self.check_changeable(what)
        if self._recreated_from is not None:
            raise StreamingError(
                f"cannot {what}: the graph was read from the graph checkpoint in "
                f"{self._recreated_from}",
                operation=what,
                hint="create all streams in the function passed to getOrCreate; to change a "
                "program, "
                "call getOrCreate with recover='program'",
            )

    # -- life cycle --

    def start(self) -> None:
        """Start receiving and processing.

        Raises:
            StreamingError: started twice, after stop, with another context active, or with nothing
                to execute.
            ConfigError: receivers would take every task slot; no checkpoint location is set on a
                cluster; a function or what it holds cannot be kept in the graph checkpoint (named,
                with its operation); or others can write the checkpoint location.
            UnsharedPathError: an executor does not see the driver's files there.
            ConcurrentDriverError: another driver uses the checkpoint location.
            RecoveryMismatchError: the checkpoint location belongs to a program with an input or
                stateful operator that this one lacks, or that is different in this one.
        """
        with self._start_lock, StreamingContext._active_lock:
            self._life.check_startable()
            _check_no_other_is_active()
            self.graph.validate()
            try:
                self._shutdown.install()
                self._engine = self._make_engine()
                self._monitoring = self._monitor(self._engine.location_url)
                self._life.enter(State.ACTIVE)
                StreamingContext._active = self
                self._engine.start()
            except BaseException:
                self.stop(stopSparkContext=False)
                raise

    def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:
        """Stop receiving and processing.

        Args:
            stopSparkContext: stop the SparkContext, too.
            stopGraceFully: first process all received records.
        """
        self._stop(stopGraceFully)
        if stopSparkContext:
            self._sc.stop()

    def _stop(self, graceful: bool, patience_s: float = 0.0) -> None:
        with self._start_lock:
            engine, self._engine = self._engine, None
            monitoring, self._monitoring = self._monitoring, None
            try:
                if engine is not None:
                    engine.stop(graceful=graceful, patience_s=patience_s)
            finally:
                if monitoring is not None:
                    monitoring.close()
                self._shutdown.remove()
                if StreamingContext._active is self:
                    StreamingContext._active = None
                self._location.remove_temporary()
                self._life.enter(State.STOPPED)

    def awaitTermination(self, timeout: float | None = None) -> None:
        """Wait until the program is stopped, at most ``timeout`` seconds.

        Raises:
            BatchFailedError: a batch's job raised; the cause is its exception. The program is
                stopped by then, unless ``spark.penstock.onBatchFailure`` is ``continue``.
            ConcurrentDriverError: another driver has taken over; the program is stopped.
            PenstockError: the engine cannot continue.
        """
        self.awaitTerminationOrTimeout(timeout)

    def awaitTerminationOrTimeout(self, timeout: float | None) -> bool:
        """Wait as ``awaitTermination`` does; return whether the program was stopped in time."""
        stopped = self._life.wait(timeout)
        if stopped:
            self._shutdown.leave()
        return stopped

    # -- inside --

    def _locate(self, directory: str) -> str:
        return directory if self._file_manager is not None else hadoop_location(directory)

    def _make_graph_checkpoints(self) -> RunCheckpoints:
        if self._checkpoint_dir is None or self._recover == "program":
            return NoGraphCheckpoints()
        return keep_graph(
            self._sc,
            self.graph,
            self._checkpoint_dir,
            interval_ms=self._settings.graph_checkpoint_interval_ms,
            is_read_back=self._recreated_from == self._checkpoint_dir,
        )

    def _make_engine(self) -> Engine:
        for output in self.graph.outputs:
            if output.exactly_once:
                check_exactly_once(output.name, self._settings)
        if self._checkpoint_dir is None:
            location = configured_location(self._settings, self._query_name)
            if location is not None:
                self.checkpoint(location)
        graph_checkpoints = self._make_graph_checkpoints()
        self._location = RunLocation(self._checkpoint_dir)
        url = self._location.open(self._sc, self.graph, self._settings)
        return Engine(
            self._sc,
            self.graph,
            CheckpointLocation(open_location(url, self._file_manager)),
            self._clock,
            self._bus,
            self._location.effective(self._settings),
            self._life.fail,
            self._end,
            graph_checkpoints,
            self._query_name,
        )

    def _monitor(self, location: str) -> Monitoring | None:
        if not self._settings.ui.enabled and self._settings.metrics.port is None:
            return None
        # What tasks import does without it.
        from penstock.streaming.context.monitoring import Monitoring

        name = self._query_name or str(self._sc.appName)
        return Monitoring(self._settings, name, self.graph.batch_interval_ms, location, self._bus)

    def _end(self, error: BaseException) -> bool:
        """Stop because of an error, in a separate thread: the calling thread is also stopped.

        Returns whether it is the first such error.
        """
        first = self._life.begin_end(error)
        if first:
            threading.Thread(target=self._stop_after_error, name="penstock-end").start()
        return first

    def _stop_after_error(self) -> None:
        try:
            self.stop(stopSparkContext=False)
        except Exception:
            _log.exception("The program could not be stopped cleanly")

    def __getstate__(self) -> NoReturn:
        raise StreamingError(
            "a StreamingContext belongs to its process and cannot be pickled",
            operation="pickle context",
            hint="do not use it in functions of streams; rdd.context is the SparkContext there",
        )


def _check_no_other_is_active() -> None:
    if StreamingContext.getActive() is not None:
        raise StreamingError(
            "only one StreamingContext may be started in a process at a time",
            operation="start",
            hint="stop the other one first; StreamingContext.getActive() returns it",
        )


def _check_spark_context(sc: object) -> None:
    """Refuse objects that cannot run batches, such as sessions of Spark Connect."""
    if isinstance(sc, SparkContext):
        return
    kind = f"{type(sc).__module__}.{type(sc).__qualname__}"
    is_connect = ".sql.connect." in kind
    raise ConfigError(
        "batches cannot run on a Spark Connect session: its SparkContext is on the server"
        if is_connect
        else f"batches run on a SparkContext, and this is a {kind}",
        operation="make StreamingContext",
        hint="run the program where Spark's driver is: spark-submit, or "
        "SparkSession.builder.master(...) with SPARK_REMOTE unset; pass spark.sparkContext"
        if is_connect
        else "pass spark.sparkContext",
    )


def _interval_ms(seconds: float | None, what: str = "batch duration") -> int:
    if not isinstance(seconds, int | float) or not 0.001 <= seconds < 10**9:
        raise ConfigError(
            f"{what} {shown(seconds)} is not allowed",
            operation=f"set {what}",
            hint="give seconds, at least 0.001",
        )
    return round(seconds * 1000)
