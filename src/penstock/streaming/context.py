"""StreamingContext: the entry point of a streaming program.

Same names and meaning as ``pyspark.streaming.StreamingContext``; the engine is penstock's.
"""

from __future__ import annotations

import enum
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Literal, NoReturn

from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.clock import Clock, SystemClock
from penstock.conf import WRITE_AHEAD_LOG, StreamingSettings, settings_without_effect
from penstock.errors import ConfigError, StreamingError
from penstock.rate import RateEstimator
from penstock.streaming.graph import DStreamGraph
from penstock.streaming.graph_checkpoint.checkpoint import Checkpoint
from penstock.streaming.graph_checkpoint.private_files import open_location
from penstock.streaming.graph_checkpoint.recreate import (
    find_checkpoint,
    require_checkpoint,
    restore_spark_context,
)
from penstock.streaming.graph_checkpoint.run import (
    NoGraphCheckpoints,
    RunCheckpoints,
    keep_graph,
)
from penstock.streaming.listener import ListenerBus, StreamingListener
from penstock.streaming.rate_control import RateControl
from penstock.streaming.scheduler.engine import Engine
from penstock.streaming.shutdown import GracefulShutdown
from penstock.streaming.stream_sources import StreamSources

__all__ = ["StreamingContext"]

_log = logging.getLogger(__name__)

_Recover = Literal["graph", "program"]
"""Where the graph comes from after a restart: read back, or built by the program again."""


class _State(enum.Enum):
    """initialized -> active -> stopped, or initialized -> stopped."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED = "stopped"


class StreamingContext(StreamSources, RateControl):
    """A streaming program: inputs, operations, outputs, and the engine that runs them.

    Args:
        sparkContext: where batches and receivers run; or a checkpoint location, from whose newest
            graph checkpoint the program is recreated, SparkContext and batch interval included.
        batchDuration: the batch interval in seconds; fractions are allowed, to the millisecond.
        clock: the clock of the batches; tests give ``penstock.testing.ManualClock``.

    Raises:
        ConfigError: the duration or a ``spark.streaming.*`` setting is wrong, the rate estimator
            that they name cannot be made, or others can write the checkpoint location.
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
    ) -> None:
        if isinstance(sparkContext, str):
            self._recreate(require_checkpoint(sparkContext), sparkContext, clock)
        else:
            self._set_up(sparkContext, DStreamGraph(_interval_ms(batchDuration)), clock)

    def _set_up(self, sc: SparkContext, graph: DStreamGraph, clock: Clock | None) -> None:
        self._sc = sc
        _use_this_python(sc)
        self._clock = clock or SystemClock()
        conf = dict(sc.getConf().getAll())
        self._settings = StreamingSettings.from_conf(conf)
        for name in settings_without_effect(conf):
            _log.warning("The setting %s has no effect: blocks of the journal need none", name)
        self.graph = graph
        if self._settings.rate.backpressure_enabled:
            RateEstimator.create(conf, graph.batch_interval_ms)  # refuses what cannot be made
        self._bus = ListenerBus()
        self._checkpoint_dir: str | None = None
        self._recover: _Recover = "graph"
        self._recreated_from: str | None = None
        self._temporary: str | None = None
        self._state = _State.INITIALIZED
        self._state_lock = threading.RLock()
        self._ended = threading.Condition()
        self._error: BaseException | None = None
        self._engine: Engine | None = None
        self._shutdown = GracefulShutdown(lambda: self.stop(False, stopGraceFully=True))

    def _recreate(self, checkpoint: Checkpoint, directory: str, clock: Clock | None) -> None:
        graph = checkpoint.graph.load()
        self._set_up(restore_spark_context(checkpoint.conf), graph, clock)
        # Where it was found, not where it was written: offsets lie beside it, also in a copy.
        self._checkpoint_dir = self._recreated_from = str(directory)
        graph.attach(self)

    @property
    def sparkContext(self) -> SparkContext:
        """Return the SparkContext of this program."""
        return self._sc

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
        """Return the context that goes on from what the checkpoint location holds.

        Inputs continue at their offsets, and batches that were cut off run again, in both modes.

        Args:
            checkpointPath: the checkpoint location: a path or an fsspec URL.
            setupFunc: makes the program: its context and streams.
            recover: where the graph comes from. "graph", as in Spark: from the newest graph
                checkpoint, with the SparkContext's settings; ``setupFunc`` is called only when
                there is none. "program": from ``setupFunc``, called each time, so that the code may
                change; inputs and stateful operators are found by their names.

        Raises:
            CheckpointError: there are graph checkpoints, and none can be read.
            ConfigError: the location cannot be used, or others can write it; see ``checkpoint``.
        """
        if recover not in ("graph", "program"):
            raise ConfigError(
                f"recover is {recover!r}", operation="getOrCreate", hint="give 'graph' or 'program'"
            )
        if recover == "graph":
            checkpoint = find_checkpoint(checkpointPath)
            if checkpoint is not None:
                recreated = cls.__new__(cls)
                recreated._recreate(checkpoint, checkpointPath, clock=None)
                return recreated
        ssc = setupFunc()
        if not isinstance(ssc, StreamingContext):
            raise ConfigError(
                f"setupFunc returned {ssc!r}",
                operation="getOrCreate",
                hint="end it with 'return ssc', the StreamingContext that it makes",
            )
        ssc.checkpoint(checkpointPath)
        ssc._recover = recover
        return ssc

    # -- set-up --

    def remember(self, duration: float) -> None:
        """Keep every stream's RDDs, and the records behind them, for that many seconds at least.

        They can be looked at with ``DStream.slice``. What windows need is kept in any case.

        Raises:
            ConfigError: the duration is no positive number.
            StreamingError: it was set before, or the context was started.
        """
        self.check_changeable("set how long to remember")
        self.graph.remember(_interval_ms(duration, "remember duration"))

    def checkpoint(self, directory: str) -> None:
        """Keep offsets, commits, journal and graph under ``directory`` (a path or an fsspec URL).

        On a cluster, driver and executors must see the same files there.

        Raises:
            ConfigError: it cannot be written, or no storage is known for the URL.
        """
        self.check_changeable("set the checkpoint location")
        open_location(directory)
        self._checkpoint_dir = str(directory)

    def addStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Have the listener told of batches and receivers."""
        self._bus.add(streamingListener)

    def check_changeable(self, what: str) -> None:
        """Raise StreamingError when the program was started: it cannot change any more."""
        if self._state is not _State.INITIALIZED:
            raise StreamingError(
                f"cannot {what}: the context was already started or stopped",
                operation=what,
                hint="set everything up before start(), or make a new StreamingContext",
            )

    def check_extensible(self, what: str) -> None:
        """Raise StreamingError when inputs, streams and outputs are given by a graph checkpoint."""
        self.check_changeable(what)
        if self._recreated_from is not None:
            raise StreamingError(
                f"cannot {what}: the graph was read from the graph checkpoint in "
                f"{self._recreated_from}",
                operation=what,
                hint="make all streams in the function given to getOrCreate; to change a program, "
                "give getOrCreate recover='program'",
            )

    # -- life cycle --

    def start(self) -> None:
        """Start receiving and processing.

        Raises:
            StreamingError: started twice, after stop, with another context active, or with nothing
                to execute.
            ConfigError: receivers would take every task slot; there is no checkpoint location on a
                cluster; a function or what it holds cannot be kept in the graph checkpoint (named,
                with its operation); or others can write the checkpoint location.
            ConcurrentDriverError: another driver uses the checkpoint location.
            RecoveryMismatchError: the checkpoint location was made by a program with an input or
                stateful operator that this one lacks, or has otherwise.
        """
        with self._state_lock, StreamingContext._active_lock:
            self._check_startable()
            self.graph.validate()
            try:
                graph_checkpoints = self._make_graph_checkpoints()
                location = CheckpointLocation(self._location_url())
                self._engine = self._make_engine(location, graph_checkpoints)
                self._state = _State.ACTIVE
                StreamingContext._active = self
                self._engine.start()
                if self._settings.stop_gracefully_on_shutdown:
                    self._shutdown.install()
            except BaseException:
                self.stop(stopSparkContext=False)
                raise

    def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:
        """Stop receiving and processing.

        Args:
            stopSparkContext: stop the SparkContext, too.
            stopGraceFully: first process all that was received.
        """
        with self._state_lock:
            engine, self._engine = self._engine, None
            try:
                if engine is not None:
                    engine.stop(graceful=stopGraceFully)
            finally:
                self._shutdown.remove()
                self._clean_up()
                self._state = _State.STOPPED
        with self._ended:
            self._ended.notify_all()
        if stopSparkContext:
            self._sc.stop()

    def awaitTermination(self, timeout: float | None = None) -> None:
        """Wait until the program is stopped, at most ``timeout`` seconds.

        Raises:
            BatchFailedError: a batch's job raised; its cause is what it raised.
            PenstockError: the engine cannot go on.
        """
        self.awaitTerminationOrTimeout(timeout)

    def awaitTerminationOrTimeout(self, timeout: float | None) -> bool:
        """Wait as ``awaitTermination`` does; return whether the program was stopped in time."""
        with self._ended:
            self._ended.wait_for(
                lambda: self._error is not None or self._state is _State.STOPPED, timeout
            )
            if self._error is not None:
                raise self._error
            stopped = self._state is _State.STOPPED
        if stopped:
            self._shutdown.leave()
        return stopped

    # -- inside --

    def _check_startable(self) -> None:
        if self._state is not _State.INITIALIZED:
            raise StreamingError(
                f"the context is {self._state.value} and cannot be started",
                operation="start",
                hint="make a new StreamingContext",
            )
        if StreamingContext._active is not None:
            raise StreamingError(
                "only one StreamingContext may be started in a process at a time",
                operation="start",
                hint="stop the other one first; StreamingContext.getActive() returns it",
            )

    def _location_url(self) -> str:
        if self._checkpoint_dir is None:
            if not str(self._sc.master).startswith("local"):
                raise ConfigError(
                    f"there is no checkpoint location, and master {self._sc.master} is a cluster",
                    operation="start",
                    hint="call checkpoint(dir) with a path that driver and executors share",
                )
            if shared := self.graph.shared_journals:
                raise ConfigError(
                    f"there is no checkpoint location, and {shared[0].name!r} is a stream of "
                    "somebody else's journal: its place there would be forgotten, and what it has "
                    "not read kept for ever",
                    operation="start",
                    ids={"stream": shared[0].name},
                    hint="call checkpoint(dir)",
                )
            if self._settings.write_ahead_log:
                raise ConfigError(
                    f"there is no checkpoint location, and {WRITE_AHEAD_LOG} is true",
                    operation="start",
                    hint="call checkpoint(dir): it is where received records are kept",
                )
            self._temporary = tempfile.mkdtemp(prefix="penstock-")
            return self._temporary
        if self.graph.has_queue():
            _log.warning("queueStream is lost when the process ends; use it in tests only")
        return self._checkpoint_dir

    def _make_graph_checkpoints(self) -> RunCheckpoints:
        if self._checkpoint_dir is None or self._recover == "program":
            return NoGraphCheckpoints()
        return keep_graph(
            self._sc,
            self.graph,
            self._checkpoint_dir,
            is_read_back=self._recreated_from == self._checkpoint_dir,
        )

    def _make_engine(
        self, location: CheckpointLocation, graph_checkpoints: RunCheckpoints
    ) -> Engine:
        return Engine(
            self._sc,
            self.graph,
            location,
            self._clock,
            self._bus,
            self._settings_in_force(),
            self._fail,
            graph_checkpoints,
        )

    def _settings_in_force(self) -> StreamingSettings:
        if self._checkpoint_dir is not None:
            return self._settings
        # The location goes with the process, so nothing in it has to survive a power cut.
        return replace(self._settings, write_ahead_log=False)

    def _fail(self, error: BaseException) -> None:
        """Keep the first error for awaitTermination."""
        with self._ended:
            self._error = self._error or error
            self._ended.notify_all()

    def _clean_up(self) -> None:
        if StreamingContext._active is self:
            StreamingContext._active = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __getstate__(self) -> NoReturn:
        raise StreamingError(
            "a StreamingContext belongs to its process and cannot be pickled",
            operation="pickle context",
            hint="do not use it in functions of streams; rdd.context is the SparkContext there",
        )


def _use_this_python(sc: SparkContext) -> None:
    """Have local workers run this interpreter; PySpark would take the first python3 on PATH."""
    if str(sc.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        sc.pythonExec = sys.executable


def _interval_ms(seconds: float | None, what: str = "batch duration") -> int:
    if not isinstance(seconds, int | float) or not 0.001 <= seconds < 10**9:
        raise ConfigError(
            f"{what} {seconds!r} is not allowed",
            operation=f"set {what}",
            hint="give seconds, at least 0.001",
        )
    return round(seconds * 1000)
