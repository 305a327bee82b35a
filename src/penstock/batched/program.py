"""A running program: polls the topics, runs batches one after the other, makes the checkpoints."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import ChainMap
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.graph import Graph, States, held, run_place
from penstock.batched.jobs import Reading, Work, run_on_spark
from penstock.batched.operations import Place
from penstock.batched.sockets import socket_folder
from penstock.batched.sources import GO_ON, Source, open_positions
from penstock.errors import BatchFailedError, KafkaDataLossError
from penstock.root_cause import root_cause
from penstock.shutdown import Shutdown, wait_in_steps

_log = logging.getLogger(__name__)
_SOCKETS = "spark.python.unix.domain.socket"
_STOPPING = "stopping after the batch that runs; another one ends the program at once"


class Program:
    """One run of a graph. Starts when it is made.

    Args:
        graph: the operations.
        sources: by node.
        checkpoints: of its checkpoint path, if it has one.
        makes_checkpoints: whether a sink of it is one that checkpoints are made for.

    Raises:
        KafkaError: the brokers do not answer, or a topic is unknown.
        CheckpointError: another program uses the checkpoint path, or it has no sound checkpoint.
    """

    def __init__(
        self,
        graph: Graph,
        sources: Mapping[int, Source],
        checkpoints: Checkpoints | None,
        makes_checkpoints: bool,
    ) -> None:
        self._graph = graph
        self._of_tasks = graph.without(Place.PROGRAM)
        self._checkpoints = checkpoints
        self._makes_checkpoints = makes_checkpoints
        self._sc = _spark()
        self._poll_interval_s = min(source.poll_interval_s for source in sources.values())
        url = None if checkpoints is None else checkpoints.url
        self._readings = {n: Reading(s.settings, s.keys, url) for n, s in sources.items()}
        self._on_spark: States = {}
        self._in_program: States = {}
        self._stopping = threading.Event()
        self._shutdown = Shutdown(self.stop, _STOPPING)
        self._error: BaseException | None = None
        self._positions = open_positions(sources, checkpoints)
        self._thread = threading.Thread(target=self._run, name="penstock batches", daemon=True)
        self._shutdown.install()
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether batches are planned."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End after the batch that is running, if there is one; wait for it."""
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._shutdown.remove()

    def await_termination(self, timeout_s: float | None = None) -> None:
        """Wait until it has ended; raise what ended it."""
        if wait_in_steps(self._has_ended, timeout_s):
            self._shutdown.leave()
            self._shutdown.remove()
            if self._error is not None:
                raise self._error

    def _has_ended(self, within_s: float) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                begun_s = time.monotonic()
                if not self._step():
                    left_s = begun_s + self._poll_interval_s - time.monotonic()
                    self._stopping.wait(max(0.0, left_s))
        except BaseException as error:
            _log.error("The program ends: %s", error)
            self._error = error
        finally:
            self._positions.clear()  # and with them their clients
            if self._checkpoints is not None:
                self._checkpoints.close()

    def _step(self) -> bool:
        """Plan a batch, and run it if it takes records; return whether more are waiting."""
        works, is_full = [], False
        for node, position in self._positions.items():
            ranges, has_more = position.plan()
            works += [Work(node, each) for each in ranges]
            is_full |= has_more
        if works:
            self._batch(works)
        return is_full

    def _batch(self, works: list[Work]) -> None:
        checkpoints = self._checkpoints if self._makes_checkpoints else None
        if checkpoints is not None:
            new = ChainMap(*(position.new_partitions for position in self._positions.values()))
            checkpoints.begin((work.range for work in works), new)
        try:
            arrivals, self._on_spark = run_on_spark(
                self._sc, self._of_tasks, self._readings, works, self._on_spark
            )
            _, self._in_program = run_place(self._graph, Place.PROGRAM, arrivals, self._in_program)
        except Exception as error:
            ranges = ", ".join(
                f"{r.topic}/{r.partition} [{r.start_offset}, {r.end_offset})"
                for r in (work.range for work in works[:10])
            )
            failed = f"the batch of {ranges}{', ...' if len(works) > 10 else ''} failed"
            cause, of = root_cause(error), "run batch"
            if cause.startswith(f"{KafkaDataLossError.__module__}.KafkaDataLossError: "):
                what = f"{failed}: {cause.partition(' Hint: ')[0]}"
                raise KafkaDataLossError(what, operation=of, hint=GO_ON) from None
            hint = "its records are read again after a restart"
            raise BatchFailedError(f"{failed}: {cause}", operation=of, hint=hint) from error
        if checkpoints is not None:
            waiting = held(self._graph, self._on_spark) | held(self._graph, self._in_program)
            checkpoints.finish(checkpoints.in_flight() - waiting)


def _spark() -> SparkContext:
    """Return the active context, or a new one: embedded unless ``spark-submit`` says otherwise.

    Workers of an embedded one are this interpreter, and not whichever ``python3`` is on the path.
    Spark talks to them by UNIX sockets: over TCP each task waits 40 ms for a delayed answer.
    """
    conf = SparkConf().setIfMissing("spark.master", "local[*]")
    if str(conf.get("spark.master")).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if SparkContext._active_spark_context is None:
            _use_unix_sockets(conf)
    return SparkContext.getOrCreate(conf.setIfMissing("spark.app.name", "penstock batches"))


def _use_unix_sockets(conf: SparkConf) -> None:
    """Use them where there is a safe folder, unless the program says otherwise."""
    if conf.get(f"{_SOCKETS}.enabled") is None and (folder := socket_folder()) is not None:
        conf.set(f"{_SOCKETS}.enabled", "true").set(f"{_SOCKETS}.dir", folder)
