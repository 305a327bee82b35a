"""The graph checkpoints of one run of a program: written, or left out, and removed when stale.

Invariant: a graph checkpoint in a location that a run has begun to drive is of the graph that runs
there. So a run whose graph was built by its program removes those that it finds before it plans a
batch; were it killed right after, the next start builds the graph by the program, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import SparkContext

from penstock.storage import Storage
from penstock.streaming.graph_checkpoint.checkpoint import Checkpoint
from penstock.streaming.graph_checkpoint.codec import codec_from_conf
from penstock.streaming.graph_checkpoint.files import remove_checkpoint_files
from penstock.streaming.graph_checkpoint.pickling import pickle_graph
from penstock.streaming.graph_checkpoint.private_files import check_private_folder
from penstock.streaming.graph_checkpoint.saved_conf import settings_to_save
from penstock.streaming.graph_checkpoint.writer import CheckpointWriter, OnCompletion

if TYPE_CHECKING:
    from penstock.streaming.graph import DStreamGraph

__all__ = ["GraphCheckpoints", "NoGraphCheckpoints", "RunCheckpoints", "keep_graph"]


class NoGraphCheckpoints:
    """For a program whose graph is rebuilt by its code at each start."""

    def start(self, storage: Storage, on_completion: OnCompletion) -> None:
        """Remove what is there; the location must be driven by this run by now."""
        remove_checkpoint_files(storage)

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

    def start(self, storage: Storage, on_completion: OnCompletion) -> None:
        """Remove what is of another graph; the location must be driven by this run by now."""
        if not self._is_read_back:
            remove_checkpoint_files(storage)
        self._writer = CheckpointWriter(storage.private(), self._codec, on_completion)

    def write(self, time_ms: int, pending_times: tuple[int, ...], done: bool) -> None:
        """Have the graph written as that of a batch's time, if it is due; ``done``: the batch is.

        The first one is due, and the one after a write that was given up.
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
