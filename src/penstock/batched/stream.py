"""The streams that programs are made of, with the names of streamz."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.graph import Graph
from penstock.batched.operations import (
    Accumulate,
    CombineLatest,
    Filter,
    Flatten,
    Gather,
    Map,
    NoStart,
    Operation,
    Partition,
    Pass,
    Sink,
    Starmap,
    Zip,
    pick,
)
from penstock.batched.program import Program
from penstock.batched.sources import Source
from penstock.batched.to_kafka import ToKafka, sink_arguments
from penstock.errors import ConfigError, StreamingError
from penstock.storage import local_root

_log = logging.getLogger(__name__)
_numbers = count()


def from_kafka_batched(
    topics: str | Sequence[str],
    consumer_conf: Mapping[str, Any],
    checkpoint_path: str | os.PathLike[str] | None = None,
    *,
    poll_interval: str | float = "1s",
    max_batch_size: int = 10_000,
    npartitions: int | None = None,
    keys: bool = False,
    start: bool = False,
    checkpoints_to_keep: int = 100,
) -> Stream:
    """Return a stream of lists: for each batch one of each partition that has new records.

    Args:
        topics: the topics, by name; a str is the name of one.
        consumer_conf: librdkafka's settings. ``auto.offset.reset`` ("latest" unless given) says
            where topics without a checkpoint begin; ``enable.auto.commit`` is always False.
        checkpoint_path: a folder or fsspec URL for checkpoints; None for no checkpoints.
        poll_interval: how often the brokers are asked for new records: "0.5s", or seconds. The
            shortest one of a program's sources counts.
        max_batch_size: the most offsets of a partition in a batch.
        npartitions: the number of partitions of each topic that are read, from the first one on.
        keys: records are ``{"key": ..., "value": ...}`` instead of the value alone.
        start: start as soon as a sink is attached, without ``start()``.
        checkpoints_to_keep: of each topic.

    Raises:
        ConfigError: an argument or a setting is wrong.
    """
    source = Source.of(
        topics,
        consumer_conf,
        poll_interval=poll_interval,
        max_batch_size=max_batch_size,
        npartitions=npartitions,
        keys=keys,
    )
    stream = Stream(Pass(), ())
    stream._source = source
    stream._starts_with_sink = start
    stream._checkpoint_path = None if checkpoint_path is None else _absolute(checkpoint_path)
    stream._checkpoints_to_keep = checkpoints_to_keep
    return stream


class Stream:
    """Elements, and what is done with them; made by ``from_kafka_batched`` and by operations.

    Operations run where the range is read, but ``accumulate``, ``partition``, ``zip``,
    ``combine_latest`` and what follows them: that is one task of the batch. What follows ``gather``
    runs in the program's process. Functions are pickled with cloudpickle.
    """

    def __init__(self, operation: Operation, upstreams: Sequence[Stream]) -> None:
        self._number = next(_numbers)
        self._operation = operation
        self._upstreams = tuple(upstreams)
        self._downstreams: list[Stream] = []
        self._source: Source | None = None
        self._starts_with_sink = False
        self._makes_checkpoints = False
        self._checkpoint_path: str | None = None
        self._checkpoints_to_keep = 100
        self._program: Program | None = None
        for each in dict.fromkeys(upstreams):
            if each._program is not None and each._program.is_running:
                raise _misused("an operation was added to a program that runs", "stop() it first")
        for each in dict.fromkeys(upstreams):
            each._downstreams.append(self)

    # -- each element by itself --

    def map(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Stream:
        """Apply a function to each element."""
        return Stream(Map(func, args, kwargs), [self])

    def starmap(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Stream:
        """Apply a function to each element's items as arguments."""
        return Stream(Starmap(func, args, kwargs), [self])

    def filter(self, predicate: Callable[..., Any], *args: Any, **kwargs: Any) -> Stream:
        """Keep the elements for which a function is true."""
        return Stream(Filter(predicate, args, kwargs), [self])

    def flatten(self) -> Stream:
        """Make an element of each item of each element."""
        return Stream(Flatten(), [self])

    def pluck(self, which: Any) -> Stream:
        """Select an item of each element, by its index or key; a tuple of items for a list."""
        return Stream(Map(pick, (which,), {}), [self])

    # -- several elements together, in one task --

    def accumulate(
        self,
        func: Callable[..., Any],
        start: Any = NoStart,
        returns_state: bool = False,
        **kwargs: Any,
    ) -> Stream:
        """Apply a function to its last result (at first ``start``) and each element.

        With ``returns_state`` it returns the next state and the result. The state lives as long as
        the program runs.
        """
        return Stream(Accumulate(func, start, returns_state, kwargs), [self])

    def partition(self, n: int) -> Stream:
        """Make tuples of ``n`` elements."""
        if n < 1:
            raise _wrong(f"partition({n})", "take 1 element or more")
        return Stream(Partition(n), [self])

    def zip(self, *others: Stream) -> Stream:
        """Make tuples of this stream's and the others' elements, first with first."""
        return _combined(Zip(1 + len(others)), [self, *others])

    def combine_latest(self, *others: Stream) -> Stream:
        """Make a tuple of all streams' newest elements whenever one has a new one."""
        return _combined(CombineLatest(1 + len(others)), [self, *others])

    def union(self, *others: Stream) -> Stream:
        """Have the elements of this stream and of the others."""
        return _combined(Pass(), [self, *others])

    def gather(self) -> Stream:
        """Have all that follows run in the program's own process."""
        return Stream(Gather(), [self])

    # -- sinks --

    def sink(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Stream:
        """Call a function with each element, and hand it on; ``add_checkpoint()`` may follow.

        Makes no checkpoint by itself: printing is not a sink that a restart could rely on.
        """
        return self._started(Stream(Sink(func, args, kwargs), [self]))

    def to_kafka(
        self,
        topic: str | os.PathLike[str],
        producer_conf: Mapping[str, Any] | str,
        checkpoint_path: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    ) -> Stream:
        """Write each element (bytes, str or None) to a topic, and make a checkpoint of each batch.

        At least once: the elements of a batch that was cut off are written again.

        By position, the arguments may also have the order of the proposal in streamz' issue 279:
        ``to_kafka(checkpoint_path, output_topic, producer_conf)``.

        Args:
            topic: where they go.
            producer_conf: librdkafka's settings.
            checkpoint_path: that of ``from_kafka_batched``, if any is given; the stream knows it.

        Raises:
            ConfigError: a setting is wrong, or it is another checkpoint path.
        """
        path, _ = self._path()
        paths = [] if path is None else [path]
        arguments = sink_arguments(topic, producer_conf, checkpoint_path, paths)
        return Stream(ToKafka(*arguments), [self])._with_checkpoints()

    def add_checkpoint(self) -> Stream:
        """Make a checkpoint of each batch when all sinks have taken it in; follows a sink.

        Raises:
            ConfigError: there is no checkpoint path, or no sink before it.
        """
        if not self._follows_sink():
            raise _wrong("add_checkpoint() without a sink before it", "sink(f).add_checkpoint()")
        if self._path()[0] is None:
            raise _wrong(
                "add_checkpoint() without a checkpoint path",
                "give from_kafka_batched a checkpoint_path",
            )
        return self._with_checkpoints()

    def _with_checkpoints(self) -> Stream:
        stream = Stream(Pass(), [self])
        stream._makes_checkpoints = True
        return self._started(stream)

    # -- the program --

    def start(self) -> None:
        """Start the program that this stream is a part of, in a thread.

        Raises:
            StreamingError: it runs already.
            ConfigError: it has no sink, or its sources have several checkpoint paths.
            CheckpointError: another program uses the checkpoint path, or a topic has no sound
                checkpoint.
            KafkaError: the brokers do not answer, or a topic is unknown.
        """
        streams = self._component()
        if self._program is not None and self._program.is_running:
            raise _misused("the program runs already", "stop() it first")
        if not any(isinstance(each._operation, (Sink, ToKafka)) for each in streams):
            raise _wrong("a program without a sink", "attach to_kafka() or sink()")
        path, keep = self._path()
        makes_checkpoints = any(stream._makes_checkpoints for stream in streams)
        if path is not None and not makes_checkpoints:
            _log.warning(
                "No sink makes checkpoints in %s: a restart reads the same records again. Follow "
                "one with add_checkpoint()",
                path,
            )
        graph, numbers = Graph(), dict[Stream, int]()
        for stream in streams:
            upstreams = tuple(numbers[each] for each in stream._upstreams)
            numbers[stream] = graph.add(stream._operation, upstreams)
        sources = {numbers[s]: s._source for s in streams if s._source is not None}
        checkpoints = None if path is None else Checkpoints(path, keep)
        for stream in streams:
            if isinstance(stream._operation, ToKafka):
                stream._operation.check_topic()
        program = Program(graph, sources, checkpoints, makes_checkpoints)
        for stream in streams:
            stream._program = program

    def stop(self) -> None:
        """Stop the program after the batch that is running; does nothing if it does not run."""
        if self._program is not None:
            self._program.stop()

    def awaitTermination(self, timeout: float | None = None) -> None:  # noqa: N802 (Spark's name)
        """Wait until the program has ended, at most for ``timeout`` seconds.

        Raises:
            PenstockError: it ended because of that; a ``BatchFailedError`` if a batch did.
            StreamingError: it was not started.
        """
        if self._program is None:
            raise _misused("the program was not started", "start() it first")
        self._program.await_termination(timeout)

    def _follows_sink(self) -> bool:
        is_sink = isinstance(self._operation, (Sink, ToKafka))
        return is_sink or any(each._follows_sink() for each in self._upstreams)

    def _started(self, stream: Stream) -> Stream:
        if any(each._starts_with_sink for each in stream._component()):
            stream.start()
        return stream

    def _path(self) -> tuple[str | None, int]:
        """Return the checkpoint path of this stream's program, and how many are kept.

        Raises:
            ConfigError: its sources do not go together.
        """
        sources = [each for each in self._component() if each._source is not None]
        topics = Counter(t for each in sources for t in each._source.topics)  # type: ignore[union-attr]
        if twice := [topic for topic, times in topics.items() if times > 1]:
            raise _wrong(
                f"topic {twice[0]} in two sources of a program",
                "use one source's stream twice",
            )
        found = {(each._checkpoint_path, each._checkpoints_to_keep) for each in sources}
        if len(found) > 1:
            raise _wrong(
                "joining streams with different checkpoint paths: "
                + ", ".join(sorted(f"{path!r} (keeps {keep})" for path, keep in found)),
                "give all sources of a program the same checkpoint_path",
            )
        return found.pop()

    def _component(self) -> list[Stream]:
        """Return all streams that are connected with this one, in the order of their making.

        So each follows its upstreams, and elements go to what was attached first, as in streamz.
        """
        found: dict[Stream, None] = {}
        waiting: list[Stream] = [self]
        while waiting:
            stream = waiting.pop()
            if stream not in found:
                found[stream] = None
                waiting += [*stream._upstreams, *stream._downstreams]
        return sorted(found, key=lambda stream: stream._number)


def _combined(operation: Operation, streams: list[Stream]) -> Stream:
    if len(streams) < 2:
        raise _wrong("combining one stream", "name at least one other")
    stream = Stream(operation, streams)
    try:
        stream._path()
    except ConfigError:
        for each in dict.fromkeys(streams):
            each._downstreams.remove(stream)
        raise
    return stream


def _absolute(path: str | os.PathLike[str]) -> str:
    root = local_root(path)
    return os.fspath(path).rstrip("/") if root is None else os.path.abspath(root)


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(f"{what} is not possible", operation="build stream", hint=hint)


def _misused(what: str, hint: str) -> StreamingError:
    return StreamingError(what, operation="build stream", hint=hint)
