"""The same functions on streamz: in its event loop, or on Dask between ``scatter`` and ``gather``.

    from penstock.batched.streamz import Stream

    stream = Stream.from_kafka_batched(["in"], conf, checkpoint_path=folder)
    stream.map(clean).flatten().to_kafka("out", conf)
    stream.start()

streamz counts the references to the metadata that an element, and all that is made of it, has. When
there are none, the element's range is done. Invariants:

1. A node that has an element after ``update`` returned holds a reference until all that it made of
   the element was handed on, and done there. ``Stream`` has the nodes of streamz for which this is
   so, and others in the place of some for which it is not. All else is refused by name.
2. A node that fails gives no reference back, so no checkpoint passes its element. The error ends
   the sources: through what they wait for, or through ``EndsSources``.
3. A source starts once: no earlier run has references that could be given back late.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any

from streamz import core, sinks, sources

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.messages import get_message_batch
from penstock.batched.sources import Position, Source, open_positions
from penstock.batched.to_kafka import ToKafka, sink_arguments
from penstock.errors import ConfigError, StreamingError
from penstock.kafka import KafkaRange

__all__ = ["Stream"]

_log = logging.getLogger(__name__)


class HoldsReferences:
    """A node of which invariant 1 is true."""


class Stream(HoldsReferences, core.Stream):  # type: ignore[misc]
    """Streams with checkpoints; made by ``from_kafka_batched`` and by operations."""

    @staticmethod
    def from_kafka_batched(
        topics: str | Sequence[str],
        consumer_conf: Any,
        checkpoint_path: str | os.PathLike[str],
        *,
        dask: bool = False,
        checkpoints_to_keep: int = 100,
        **options: Any,
    ) -> Any:
        """Return a stream of lists; see ``penstock.batched.from_kafka_batched``.

        Options are ``poll_interval``, ``max_batch_size``, ``npartitions`` and ``keys``. With
        ``dask`` ranges are read on Dask's workers. Streams that are joined have a path each.
        """
        source = Source.of(topics, consumer_conf, **options)
        ranges = FromKafkaBatched(source, Checkpoints(checkpoint_path, checkpoints_to_keep))
        return (ranges.scatter() if dask else ranges).starmap(get_message_batch, keys=source.keys)

    def scatter(self, **kwargs: Any) -> Any:
        """Have what follows run on Dask's workers, up to ``gather()``."""
        from penstock.batched.on_dask import scatter  # needs distributed

        return scatter(self, **kwargs)

    @property
    def error(self) -> BaseException | None:
        """What ended a source of this stream; None if nothing did."""
        return next((each.failure for each in sources_of(self) if each.failure), None)


class FromKafkaBatched(Stream, sources.Source):  # type: ignore[misc]
    """Emits what ``get_message_batch`` takes: one element for each range of a batch."""

    def __init__(self, source: Source, checkpoints: Checkpoints) -> None:
        super().__init__()
        self.path = checkpoints.url
        self.failure: BaseException | None = None
        self._source = source
        self._checkpoints = checkpoints
        self._position: Position | None = None
        self._pending: set[KafkaRange] = set()

    def start(self) -> None:
        """Become the program of the checkpoint path, and begin to poll, unless it runs.

        Raises as ``penstock.batched.Stream.start``, and:
            StreamingError: it has run before.
            ConfigError: no sink makes checkpoints, or a node is not one of ``Stream``.
        """
        if not self.stopped:
            return
        if self.started:
            what = "the stream has run before"
            raise StreamingError(what, operation="start stream", hint="build it again")
        if not any(isinstance(node, CheckpointSink) for node in self._checked_nodes()):
            hint = "attach to_kafka(), or follow a sink with add_checkpoint()"
            raise ConfigError("no sink makes checkpoints", operation="start stream", hint=hint)
        self._position = open_positions({0: self._source}, self._checkpoints)[0]
        super().start()

    async def run(self) -> None:
        """Emit batches until the source is stopped; see streamz."""
        try:
            while not self.stopped:
                if not await self._emit_batch():
                    await asyncio.sleep(self._source.poll_interval_s)
        except BaseException as error:
            self.fail(error)
        self._close_if_ended()

    def fail(self, error: BaseException) -> None:
        """End, because of an error: what is in flight gets into no checkpoint."""
        if self.failure is None:
            _log.error("The stream ends: %s", error)
            self.failure = error
            self.stop()
            self._close_if_ended()

    async def _emit_batch(self) -> bool:
        """Plan and emit a batch; return whether more records are waiting."""
        position = self._position
        assert position is not None
        ranges, more = await asyncio.get_running_loop().run_in_executor(None, position.plan)
        if ranges and not self.stopped:
            self._checked_nodes()
            self._pending.update(ranges)
            self._checkpoints.begin(ranges, position.new_partitions)
            for each in ranges:
                low, high = each.start_offset, each.end_offset - 1
                wanted = (self._source.settings, each.topic, each.partition, low, high, self.path)
                ref = core.RefCounter(cb=partial(self._done, each), loop=self.loop)
                await self.emit(wanted, asynchronous=True, metadata=[{"ref": ref}])
        return more

    def _done(self, each: KafkaRange) -> None:
        """Take in that nothing refers to a range any more."""
        if self.failure is None and each in self._pending:
            self._pending.remove(each)
            try:
                self._checkpoints.finish([each])
            except BaseException as error:
                self.fail(error)
            self._close_if_ended()

    def _close_if_ended(self) -> None:
        if self.stopped and (self.failure or not self._pending):
            self._position = None  # and with it its client
            self._checkpoints.close()

    def _checked_nodes(self) -> list[Any]:
        """Return all nodes that get elements of this source, if each of them may."""
        nodes = _reached(self, "downstreams")
        for node in nodes:
            if not isinstance(node, HoldsReferences):
                raise ConfigError(
                    f"{type(node).__name__}() is refused: it may have elements without references",
                    operation="start stream",
                    hint="see docs/batched.md for those that are possible; on Dask, gather() first",
                )
        return nodes


class EndsSources:
    """Hands elements on in a coroutine of its own, whose error no source would get."""

    async def cb(self) -> None:
        """See streamz."""
        try:
            await super().cb()  # type: ignore[misc]
        except BaseException as error:
            for source in sources_of(self):
                source.fail(error)


class HoldsUntilEnd:
    """Holds a reference until the coroutine of ``update`` has ended."""

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> Any:
        """See streamz."""
        result = super().update(x, who, metadata)  # type: ignore[misc]
        return _holding(metadata, result) if isawaitable(result) else result


def register(stream: Any, module: Any, names: str, *mixins: type) -> None:
    """Let a class of streams have nodes of streamz."""
    for name in names.split():
        stream.register_api()(type(name, (*mixins, stream, getattr(module, name)), {}))


register(Stream, core, "accumulate combine_latest filter map pluck sliding_window starmap")
register(Stream, core, "union unique zip")
register(Stream, core, "buffer", EndsSources)
register(Stream, core, "rate_limit", HoldsUntilEnd)
register(Stream, sinks, "sink", HoldsUntilEnd)


@Stream.register_api(attribute_name="partition")
class Partition(Stream, core.partition):  # type: ignore[misc]
    """Tuples of ``n`` elements. It has no ``timeout``: no source would get its error."""

    def __init__(self, upstream: Any, n: int, key: Any = None) -> None:
        super().__init__(upstream, n, key=key)


@Stream.register_api(attribute_name="flatten")
class Flatten(Stream):
    """Each item of each element, and each with its metadata: streamz has it with the last alone."""

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> Any:
        """See streamz."""
        return [self.emit(item, asynchronous=True, metadata=metadata) for item in x]


@Stream.register_api(attribute_name="add_checkpoint")
class CheckpointSink(Stream, sinks.Sink):  # type: ignore[misc]
    """What checkpoints are made for. Hands elements on; keeps itself alive, and what feeds it."""

    def __init__(self, upstream: Any) -> None:
        if any(each.started for each in sources_of(upstream)):
            what = "a sink was added to a running stream, whose checkpoints would pass it over"
            raise StreamingError(what, operation="build stream", hint="attach it before start()")
        super().__init__(upstream, ensure_io_loop=True)

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> Any:
        """See streamz."""
        return self.emit(x, asynchronous=True, metadata=metadata)


@Stream.register_api(attribute_name="to_kafka")
class KafkaSink(CheckpointSink):
    """Writes elements to a topic, and hands them on when they are delivered.

    streamz's own takes each answer for that to its oldest element, and a refusal for a success.
    The arguments are those of ``penstock.batched``, also in the proposal's order.
    """

    def __init__(
        self, upstream: Any, topic: Any, producer_conf: Any, checkpoint_path: Any = None
    ) -> None:
        paths = [each.path for each in sources_of(upstream)]
        self._sink = ToKafka(*sink_arguments(topic, producer_conf, checkpoint_path, paths))
        self._values: list[Any] = []
        self._written: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()
        super().__init__(upstream)

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> Any:
        """See streamz."""
        self._values.append(x)
        if len(self._values) == 1:
            self._written = asyncio.ensure_future(self._write())
        return _holding(metadata, self._hand_on(x, self._written, metadata))

    async def _write(self) -> None:
        """Write what comes until the values before are written; wait until all is delivered."""
        async with self._lock:
            values, self._values = self._values, []
            await asyncio.get_running_loop().run_in_executor(None, self._sink.finish, values)

    async def _hand_on(self, x: Any, written: Any, metadata: Any) -> None:
        await written
        await self.emit(x, asynchronous=True, metadata=metadata)


def sources_of(node: Any) -> list[FromKafkaBatched]:
    """Return the sources that a node gets elements of."""
    return [each for each in _reached(node, "upstreams") if isinstance(each, FromKafkaBatched)]


def _reached(node: Any, direction: str) -> list[Any]:
    found = [node]
    for each in found:
        found += [next_ for next_ in getattr(each, direction) if next_ not in found]
    return found


def _holding(metadata: Any, result: Awaitable[Any]) -> asyncio.Future[Any]:
    """Hold references until a result is there; an error does not give them back."""
    refs = [each["ref"] for each in metadata or () if "ref" in each]
    for ref in refs:
        ref.retain()

    async def wait() -> Any:
        found = await result
        for ref in refs:
            ref.release()
        return found

    return asyncio.ensure_future(wait())
