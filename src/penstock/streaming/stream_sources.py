"""What a program makes its streams with: inputs, and operations on several streams.

Same names and meaning as the methods of ``pyspark.streaming.StreamingContext``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark import RDD, SparkContext, StorageLevel

from penstock.errors import ConfigError
from penstock.receivers import Receiver, SocketReceiver, TailReceiver
from penstock.streaming.dstream import DStream, UnionDStream, transformed
from penstock.streaming.graph import DStreamGraph
from penstock.streaming.inputs import QueueInputDStream
from penstock.streaming.receiver_input import ReceiverInputDStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["StreamSources"]


class StreamSources(ABC):
    """The part of a StreamingContext that makes streams."""

    graph: DStreamGraph

    @property
    @abstractmethod
    def sparkContext(self) -> SparkContext:
        """Return the SparkContext of this program."""

    def receiverStream(self, receiver: Receiver, name: str | None = None) -> ReceiverInputDStream:
        """Return the stream of what a receiver stores.

        Args:
            receiver: runs on an executor; its records go through the journal.
            name: the stream's name in the journal and in the offsets; give one to keep a stream's
                data when the program's inputs change order.
        """
        if not isinstance(receiver, Receiver):
            raise ConfigError(
                f"{receiver!r} is no receiver",
                operation="receiverStream",
                hint="give an instance of a subclass of penstock.receivers.Receiver",
            )
        return ReceiverInputDStream(self._context, receiver, name)

    def socketTextStream(
        self,
        hostname: str,
        port: int,
        storageLevel: StorageLevel | None = None,
        name: str | None = None,
    ) -> ReceiverInputDStream:
        """Return the stream of lines that a TCP server sends.

        ``storageLevel`` is taken for compatibility and has no effect: records live in the journal,
        not in executors' memory.
        """
        return self.receiverStream(
            SocketReceiver(hostname, port), self._name("socket") if name is None else name
        )

    def tailStream(
        self, path: str | Sequence[str], name: str | None = None
    ) -> ReceiverInputDStream:
        """Return the stream of lines appended to files, followed as ``tail -F`` does, exactly once.

        Args:
            path: a file, a glob, or several of them, as the executor that follows them sees them.
            name: see ``receiverStream``.
        """
        return self.receiverStream(TailReceiver(path), self._name("tail") if name is None else name)

    def queueStream(
        self,
        rdds: Iterable[RDD[Any] | Iterable[Any]],
        oneAtATime: bool = True,
        default: RDD[Any] | Iterable[Any] | None = None,
    ) -> DStream:
        """Return the stream of a list of RDDs or lists, for tests. Changes of it are not seen."""
        queue = [self._as_rdd(item) for item in rdds]
        standby = None if default is None else self._as_rdd(default)
        return QueueInputDStream(self._context, queue, oneAtATime, standby)

    # -- operations on several streams --

    def transform(
        self, dstreams: Sequence[DStream], transformFunc: Callable[[list[RDD[Any]]], RDD[Any]]
    ) -> DStream:
        """Return the stream of ``transformFunc([rdd, ...])`` over one RDD of each stream."""
        if not dstreams:
            raise ConfigError(
                "no streams were given", operation="transform", hint="give at least one DStream"
            )
        return transformed(self._context, "transform", tuple(dstreams), _OfList(transformFunc))

    def union(self, *dstreams: DStream) -> DStream:
        """Return one stream with the records of all."""
        if not dstreams:
            raise ConfigError(
                "should have at least one DStream to union",
                operation="union",
                hint="give at least one DStream",
            )
        return dstreams[0] if len(dstreams) == 1 else UnionDStream(self._context, dstreams)

    # -- inside --

    @property
    def _context(self) -> StreamingContext:
        return cast("StreamingContext", self)

    def _name(self, kind: str) -> str:
        return f"{kind}-{len(self.graph.inputs)}"

    def _as_rdd(self, item: RDD[Any] | Iterable[Any]) -> RDD[Any]:
        return item if isinstance(item, RDD) else self.sparkContext.parallelize(list(item))


class _OfList:
    """Calls a function of a list of RDDs with RDDs as arguments; pickles as the function does."""

    def __init__(self, func: Callable[[list[RDD[Any]]], RDD[Any]]) -> None:
        self._func = func

    def __call__(self, *rdds: RDD[Any]) -> RDD[Any]:
        return self._func(list(rdds))
