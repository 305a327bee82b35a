"""The graph checkpoints of one run of a program: written or not, and removed when stale.

Invariant: jobs of a batch that a run planned are created only when a reader would find that run's
graph, or no graph. Until then the location may belong to another run, and its graph stays readable.
A run whose graph was built by its program, in a location with graph checkpoints of another graph,
goes through these steps; after a kill a reader finds:

    step                                          what a reader finds
    --------------------------------------------  ------------------------------------------------
    start, batches of the runs before run again   the other graph: it planned all that is planned
    own batch planned, and no other driver seen   the other graph: none of the batch's jobs ran, and
                                                  it runs them as it runs any batch that was cut off
    own graph written under the newest time       the own graph, which is the newest; the others
                                                  stand below it
    others removed                                the own graph; nothing, if it is not kept: then
                                                  the next start builds it by the program, too

In the second step every earlier run is fenced, so no files of a live run are removed. In a location
without graph checkpoints, or if the graph was read from there, the graph is written at start.

A failure in the last two steps is a WARN and does not delay batches, nor does a storage that takes
longer than 10 s to write: the step is retried, and until then a reader may find the other graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark import SparkContext

from penstock.errors import StorageError
from penstock.storage import Storage
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.codec import codec_from_conf
from penstock.streaming.recovery.files import get_checkpoint_files, remove_checkpoint_files
from penstock.streaming.recovery.location_storage import check_unpickled
from penstock.streaming.recovery.pickling import pickle_graph
from penstock.streaming.recovery.saved_conf import settings_to_save
from penstock.streaming.recovery.writer import CheckpointWriter

if TYPE_CHECKING:
    from penstock.streaming.core.program import Graph

_log = logging.getLogger(__name__)


class NoGraphCheckpoints:
    """For a program that rebuilds its graph at each start."""

    def __init__(self) -> None:
        self._stale: Storage | None = None

    def start(self, storage: Storage) -> None:
        """Set the location; nothing there is changed before ``supersede``."""
        self._stale = storage

    def supersede(self, time_ms: int, pending_times: tuple[int, ...]) -> None:
        """Remove existing files; this run has planned the batch of ``time_ms``, and is alone."""
        if self._stale is None:
            return
        try:
            remove_checkpoint_files(self._stale)
        except StorageError as error:
            _warn_of_other_graph(error)
        else:
            self._stale = None

    def write(self, time_ms: int, pending_times: tuple[int, ...]) -> None:
        """Write nothing."""

    def stop(self) -> None:
        """Do nothing."""


class GraphCheckpoints:
    """For a program whose graph is read back.

    The graph does not change while the program runs, so it is written when the program starts, and
    then so rarely that the cost is negligible.

    Args:
        template: the checkpoint without the time and the pending times.
        codec: how files are compressed.
        interval_ms: the least time between two checkpoints, in batches' times; 0: each batch has
            two, when it is planned and when it is done.
        is_read_back: whether the graph comes from a graph checkpoint of this location.
    """

    def __init__(
        self, template: Checkpoint, codec: str, *, interval_ms: int, is_read_back: bool
    ) -> None:
        self._template = template
        self._codec = codec
        self._interval_ms = interval_ms
        self._is_read_back = is_read_back
        self._submitted_ms: int | None = None
        self._writer: CheckpointWriter | None = None
        self._make_replacing: Callable[[], CheckpointWriter] | None = None

    def start(self, storage: Storage) -> None:
        """Start to write, unless checkpoints of another graph exist: see ``supersede``.

        Raises:
            StorageError: the location cannot be listed.
        """
        make = partial(CheckpointWriter, storage.private(), self._codec)
        if self._is_read_back or not get_checkpoint_files(storage):
            self._writer = make()
        else:
            self._make_replacing = partial(make, replaces=True)

    def supersede(self, time_ms: int, pending_times: tuple[int, ...]) -> None:
        """Write the graph in place of another one; return when done, after 10 s at most.

        This run has planned the batch of ``time_ms``, and is alone.
        """
        if self._make_replacing is None:
            return
        try:
            self._writer = self._make_replacing()
        except StorageError as error:
            _warn_of_other_graph(error)
            return
        self._make_replacing = None
        self.write(time_ms, pending_times)
        self._writer.wait_written()

    def write(self, time_ms: int, pending_times: tuple[int, ...]) -> None:
        """Write the graph under a batch's time, if it is due.

        The first one is due, and the one after a failed write; none is due while those of another
        graph exist.
        """
        if self._writer is None or not (self._writer.failed or self._is_due(time_ms)):
            return
        self._submitted_ms = time_ms
        checkpoint = replace(
            self._template, checkpoint_time_ms=time_ms, pending_times=pending_times
        )
        self._writer.write(checkpoint)

    def stop(self) -> None:
        """Write the pending checkpoint, for 10 s at most."""
        if self._writer is not None:
            self._writer.stop()

    def _is_due(self, time_ms: int) -> bool:
        return self._submitted_ms is None or time_ms - self._submitted_ms >= self._interval_ms


RunCheckpoints = GraphCheckpoints | NoGraphCheckpoints


def _warn_of_other_graph(error: StorageError) -> None:
    _log.warning(
        "The graph checkpoints of another graph stay until the next batch, when their removal is "
        "retried; until then a restart may read that graph: %s",
        error,
    )


def keep_graph(
    sc: SparkContext,
    graph: Graph,
    directory: str,
    *,
    interval_ms: int,
    is_read_back: bool,
) -> GraphCheckpoints:
    """Return the object that stores a graph in a checkpoint location.

    Raises:
        ConfigError: an object in the graph cannot be pickled (the error names it), other users can
            write to the location, or a setting is invalid.
    """
    check_unpickled(directory)
    graph.is_kept = True
    conf = sc.getConf().getAll()
    template = Checkpoint(
        master=str(sc.master),
        framework=str(sc.appName),
        jars=tuple(sc._jsc.jars()),
        graph=pickle_graph(graph),
        checkpoint_time_ms=0,
        checkpoint_dir=directory,
        checkpoint_interval_ms=graph.batch_interval_ms,
        pending_times=(),
        conf=settings_to_save(conf),
    )
    codec = codec_from_conf(dict(conf))
    return GraphCheckpoints(template, codec, interval_ms=interval_ms, is_read_back=is_read_back)
