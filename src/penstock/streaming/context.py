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
from typing import ClassVar

from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.clock import Clock, SystemClock
from penstock.conf import StreamingSettings
from penstock.errors import ConfigError, StreamingError
from penstock.storage import open_storage
from penstock.streaming.graph import DStreamGraph
from penstock.streaming.listener import ListenerBus, StreamingListener
from penstock.streaming.scheduler.engine import Engine
from penstock.streaming.shutdown import GracefulShutdown
from penstock.streaming.stream_sources import StreamSources

__all__ = ["StreamingContext"]

_log = logging.getLogger(__name__)


class _State(enum.Enum):
    """initialized -> active -> stopped, or initialized -> stopped."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED = "stopped"


class StreamingContext(StreamSources):
    """A streaming program: inputs, operations, outputs, and the engine that runs them.

    Args:
        sparkContext: where batches and receivers run.
        batchDuration: the batch interval in seconds; fractions are allowed, to the millisecond.
        clock: the clock of the batches; tests give ``penstock.testing.ManualClock``.

    Raises:
        ConfigError: the duration or a ``spark.streaming.*`` setting is wrong.
    """

    _active: ClassVar[StreamingContext | None] = None
    _active_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        sparkContext: SparkContext,
        batchDuration: float | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._sc = sparkContext
        _use_this_python(sparkContext)
        self._clock = clock or SystemClock()
        self._settings = StreamingSettings.from_conf(dict(sparkContext.getConf().getAll()))
        self.graph = DStreamGraph(_interval_ms(batchDuration))
        self._bus = ListenerBus()
        self._checkpoint_dir: str | None = None
        self._temporary: str | None = None
        self._state = _State.INITIALIZED
        self._state_lock = threading.RLock()
        self._ended = threading.Condition()
        self._error: BaseException | None = None
        self._engine: Engine | None = None
        self._shutdown = GracefulShutdown(lambda: self.stop(False, stopGraceFully=True))

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
        cls, checkpointPath: str | None, setupFunc: Callable[[], StreamingContext]
    ) -> StreamingContext:
        """Return the active context, or else what ``getOrCreate`` returns.

        Without a ``checkpointPath`` a new context is what ``setupFunc`` returns.
        """
        active = cls.getActive()
        if active is not None:
            return active
        if checkpointPath is None:
            return setupFunc()
        return cls.getOrCreate(checkpointPath, setupFunc)

    @classmethod
    def getOrCreate(
        cls, checkpointPath: str, setupFunc: Callable[[], StreamingContext]
    ) -> StreamingContext:
        """Return ``setupFunc()``, going on from what the checkpoint location holds.

        Inputs continue at their offsets and batches that were cut off run again. The graph is not
        kept in the location: it is what ``setupFunc`` builds, each time.

        Raises:
            ConfigError: the location cannot be used; see ``checkpoint``.
        """
        ssc = setupFunc()
        ssc.checkpoint(checkpointPath)
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
        """Keep offsets, commits and the journal under ``directory`` (a path or an fsspec URL).

        On a cluster, driver and executors must see the same files there.

        Raises:
            ConfigError: it cannot be written, or no storage is known for the URL.
        """
        self.check_changeable("set the checkpoint location")
        open_storage(directory)
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

    # -- life cycle --

    def start(self) -> None:
        """Start receiving and processing.

        Raises:
            StreamingError: started twice, after stop, with another context active, or with nothing
                to execute.
            ConfigError: receivers would take every task slot, or there is no checkpoint location on
                a cluster.
            ConcurrentDriverError: another driver uses the checkpoint location.
            RecoveryMismatchError: the checkpoint location was made by a program with other inputs.
        """
        with self._state_lock, StreamingContext._active_lock:
            self._check_startable()
            self.graph.validate()
            try:
                location = CheckpointLocation(self._location_url())
                self._engine = self._make_engine(location)
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
            self._temporary = tempfile.mkdtemp(prefix="penstock-")
            return self._temporary
        if self.graph.has_queue():
            _log.warning("queueStream is lost when the process ends; use it in tests only")
        return self._checkpoint_dir

    def _make_engine(self, location: CheckpointLocation) -> Engine:
        return Engine(
            self._sc,
            self.graph,
            location,
            self._clock,
            self._bus,
            self._settings,
            self._fail,
        )

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
