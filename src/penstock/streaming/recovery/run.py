"""The graph checkpoints of one run of a program: written, or left out, and removed when stale.

Invariant: jobs of a batch that a run planned are made only when what is read back is of that run's
graph, or nothing is. Until then the location may belong to another run, whose graph stays there to
be read. A run whose graph was built by its program, in a location with graph checkpoints of another
graph, goes through these steps; a kill leaves to be read:

    step                                          what a reader finds
    --------------------------------------------  ------------------------------------------------
    start, batches of the runs before run again   the other graph: it planned all that is planned
    own batch planned, and no other driver seen   the other graph: none of the batch's jobs ran, and
                                                  it runs them as it runs any batch that was cut off
    own graph written under the newest time       the own graph, which is the newest; the others
                                                  stand below it
    others removed                                the own graph; nothing, if it is not kept: then
                                                  the next start builds it by the program, too

By the second step every earlier run is fenced off, so none lives whose files are removed. In a
location without graph checkpoints, or when the graph is read back from there, nothing has to wait:
the graph is written at the start.

A failure in the last two steps is a WARN and does not hold up batches, nor does a storage that
takes longer than 10 s to write: it is tried again, and until then the other graph may be read.
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
from penstock.streaming.recovery.pickling import pickle_graph
from penstock.streaming.recovery.private_files import check_private_folder
from penstock.streaming.recovery.saved_conf import settings_to_save
from penstock.streaming.recovery.writer import CheckpointWriter, OnCompletion

if TYPE_CHECKING:
    from penstock.streaming.engine.graph import DStreamGraph

__all__ = ["GraphCheckpoints", "NoGraphCheckpoints", "RunCheckpoints", "keep_graph"]

_log = logging.getLogger(__name__)


class NoGraphCheckpoints:
    """For a program whose graph is rebuilt by its code at each start."""

    def __init__(self) -> None:
        self._stale: Storage | None = None

    def start(self, storage: Storage, on_completion: OnCompletion) -> None:
        """Take note of the location; nothing there is touched before ``supersede``."""
        self._stale = storage

    def supersede(self, time_ms: int, pending_times: tuple[int, ...]) -> None:
        """Remove what is there; this run has planned the batch of ``time_ms``, and is alone."""
        if self._stale is None:
            return
        try:
            remove_checkpoint_files(self._stale)
        except StorageError as error:
            _warn_of_other_graph(error)
        else:
            self._stale = None

    def write(self, time_ms: int, pending_times: tuple[int, ...], done: bool) -> None:
        """Write nothing."""

    def stop(self) -> None:
        """Do nothing."""


class GraphCheckpoints:
    """For a program whose graph is read back.

    The graph does not change while the program runs, so it is written when the program starts, and
    then so seldom that it costs nothing.

    Args:
        template: all that is kept, but for the time and the pending times.
        codec: how files are compressed.
        interval_ms: how far apart two checkpoints are at least, in batches' times; 0: each batch
            has two, when it is planned and when it is done.
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

    def start(self, storage: Storage, on_completion: OnCompletion) -> None:
        """Begin to write, unless there are checkpoints of another graph: see ``supersede``.

        Raises:
            StorageError: the location cannot be listed.
        """
        make = partial(CheckpointWriter, storage.private(), self._codec, on_completion)
        if self._is_read_back or not get_checkpoint_files(storage):
            self._writer = make()
        else:
            self._make_replacing = partial(make, replaces=True)

    def supersede(self, time_ms: int, pending_times: tuple[int, ...]) -> None:
        """Write the graph in place of another one that is there; return when done, in 10 s at most.

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
        self.write(time_ms, pending_times, done=False)
        self._writer.wait_written()

    def write(self, time_ms: int, pending_times: tuple[int, ...], done: bool) -> None:
        """Have the graph written as that of a batch's time, if it is due; ``done``: the batch is.

        The first one is due, and the one after a write that was given up; none is while another
        graph's are there.
        """
        if self._writer is None or not (self._writer.failed or self._is_due(time_ms)):
            return
        self._submitted_ms = time_ms
        checkpoint = replace(
            self._template, checkpoint_time_ms=time_ms, pending_times=pending_times
        )
        self._writer.write(checkpoint, clear_checkpoint_data_later=done)

    def stop(self) -> None:
        """Write what is left, for 10 s at most."""
        if self._writer is not None:
            self._writer.stop()

    def _is_due(self, time_ms: int) -> bool:
        return self._submitted_ms is None or time_ms - self._submitted_ms >= self._interval_ms


RunCheckpoints = GraphCheckpoints | NoGraphCheckpoints


def _warn_of_other_graph(error: StorageError) -> None:
    _log.warning(
        "The graph checkpoints of another graph stay until the next batch, when removing them is "
        "tried again; until then a restart may read that graph: %s",
        error,
    )


def keep_graph(
    sc: SparkContext,
    graph: DStreamGraph,
    directory: str,
    *,
    interval_ms: int,
    is_read_back: bool,
) -> GraphCheckpoints:
    """Return what keeps a graph in a checkpoint location.

    Raises:
        ConfigError: something in the graph cannot be pickled (it is named), others than this user
            can write the location, or a setting is wrong.
    """
    check_private_folder(directory)
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
