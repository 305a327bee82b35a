"""The same functions on ``streamz.Stream``; importing this module registers them.

    import penstock.batched.streamz
    from streamz import Stream

    Stream.from_kafka_batched(["in"], conf, checkpoint_path=folder).flatten().to_kafka("out", conf)

streamz counts for each element who still has it. A range is done when nothing has its element any
more, nor what was made of it: then the callback of its counter tells ``Checkpoints``, which knows
when a batch is. A coroutine has its element until it ends, which streamz leaves out (``rate_limit``
sleeps without a count): ``_emit`` does that here, for all nodes. On the Dask backend ``gather``
keeps the count until a result is there.

Without ``checkpoint_path`` these are streamz's own functions.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any
from weakref import WeakValueDictionary

import streamz
import streamz.sinks
import streamz.sources
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Message, Producer
from streamz.core import RefCounter
from tornado.gen import convert_yielded

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.exactly_once import check_none_waits
from penstock.batched.messages import get_message_batch
from penstock.batched.sources import Position, Source
from penstock.batched.to_kafka import in_order
from penstock.errors import ConfigError, KafkaDataLossError, KafkaError, StreamingError
from penstock.kafka import KafkaRange
from penstock.kafka.failures import client_made, kafka_error
from penstock.kafka.sink import sink_conf
from penstock.kafka.sink.producer import sender_conf, shown
from penstock.storage import open_storage
from penstock.storage.patience import Patience

__all__ = ["AddCheckpoint", "FromKafkaBatched", "ToKafka", "from_kafka_batched"]

_log = logging.getLogger(__name__)
_POLL_S = 0.02
_checkpoints: WeakValueDictionary[str, Checkpoints] = WeakValueDictionary()
_streamz_from_kafka_batched = streamz.Stream.from_kafka_batched
_streamz_to_kafka = streamz.Stream.to_kafka
_streamz_flatten = streamz.Stream.flatten
_streamz_map_async = streamz.Stream.map_async
_streamz_emit = streamz.Stream._emit


class FromKafkaBatched(streamz.sources.Source):  # type: ignore[misc]
    """Emits what ``get_message_batch`` takes: one element for each range of a batch."""

    stopped: bool

    def __init__(self, source: Source, checkpoints: Checkpoints, **kwargs: Any) -> None:
        self._source = source
        self._checkpoints = checkpoints
        self._position: Position | None = None
        self._patience = Patience("No batch is planned until the brokers answer")
        self.makes_checkpoints = False
        self.starts_with_sink = False
        self._pending: set[KafkaRange] = set()
        self._is_open = False
        self.error: BaseException | None = None
        """What stopped it."""
        super().__init__(**kwargs)

    def start(self) -> None:
        """Become the program of the checkpoint path, and begin to poll.

        Raises as ``penstock.batched.Stream.start``.
        """
        if not self.stopped:
            return
        for node in _downstreams(self):
            if hasattr(node, "cb"):
                _Watched.of(node).check()
        self.error = None
        ends = self._checkpoints.open(self._source.topics)
        self._is_open = True
        try:
            check_none_waits(self._checkpoints, ends)
            self._position = Position(self._source, ends, self._checkpoints.topic_ids())
            self._checkpoints.note_topic_ids(self._position.topic_ids)
            for topic, begins in self._position.new_topics.items():
                self._checkpoints.begin_topic(topic, begins)
        except BaseException:
            self._close()
            raise
        self.stopped, self.started = False, False
        self.loop.add_callback(self._poll, self._position)

    def fail(self, error: BaseException) -> None:
        """Stop, because of an error: what is in flight gets into no checkpoint."""
        _log.error("The stream ends: %s", error)
        self.stop()
        self._close()
        self.error = self.error or error  # last: who sees it may start the stream again

    async def _poll(self, position: Position) -> None:
        """Emit batches until the source is stopped, or has started again with another position."""
        try:
            while not self.stopped and self._position is position:
                if not await self._batch(position):
                    await _sleep(self._source.poll_interval_s)
        except BaseException as error:
            if self._position is position:
                self.fail(error)
        if self._position is position:
            self._close_if_idle()

    async def _batch(self, position: Position) -> bool:
        """Plan and emit a batch; return whether more records are waiting."""
        try:
            plan = self.loop.run_in_executor(None, position.plan)
            planned: tuple[list[KafkaRange], bool] = await plan
        except KafkaDataLossError:
            raise
        except KafkaError as error:
            self._patience.bear(error)
            return False
        self._patience.recovered()
        if self._position is not position:
            return False
        self.started = True
        ranges, has_more = planned
        if ranges and self.makes_checkpoints:
            self._checkpoints.begin(ranges, position.new_partitions)
            self._pending.update(ranges)
        for each in ranges:
            ref = RefCounter(loop=self.loop)
            ref.cb = partial(self._done, position, each, ref)
            wanted = (
                self._source.settings,
                each.topic,
                each.partition,
                each.start_offset,
                each.end_offset - 1,
                self._checkpoints.url,
            )
            for result in self._emit(wanted, metadata=[{"ref": ref}]):
                await result
        return has_more

    def _done(self, position: Position, each: KafkaRange, ref: RefCounter) -> None:
        """Take in that nothing has a range's element any more; may be called again."""
        if self._position is not position or each not in self._pending or not self._is_open:
            return
        if ref.count > 0:  # a coroutine has taken it meanwhile
            return
        self._pending.remove(each)
        try:
            self._checkpoints.check_noted()
            self._checkpoints.finish([each])
        except BaseException as error:
            self.fail(error)
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self.stopped and not self._pending:
            self._close()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._position = None  # or its ``_poll`` could close what a start has just opened
            self._pending.clear()
            self._checkpoints.close(self._source.topics)


class _Watched:
    """What a node hands on in a coroutine of its own: if it fails, so do the node's sources.

    streamz ends that coroutine, and tells no one: a buffer would be full for ever.
    """

    def __init__(self, node: streamz.Stream) -> None:
        self._node = node
        self._emit = node._emit
        self._error: BaseException | None = None

    @classmethod
    def of(cls, node: streamz.Stream) -> _Watched:
        """Return what watches a node, from now on if nothing did."""
        if not isinstance(node._emit, cls):
            node._emit = cls(node)
        return node._emit

    def check(self) -> None:
        """Raise StreamingError if the coroutine has ended."""
        if self._error is not None:
            raise StreamingError(
                f"{type(self._node).__name__} emits no more elements, because a node after it "
                f"failed: {self._error}",
                operation="start stream",
                hint="build the stream anew, and start that one",
            )

    def __call__(self, x: Any, metadata: Any = None) -> Any:
        try:
            results = self._emit(x, metadata=metadata)
        except BaseException as error:
            self._fail(error)
            raise
        for each in results:
            if hasattr(each, "add_done_callback"):
                each.add_done_callback(self._note_end)
        return results

    def _note_end(self, future: Any) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        _fail_sources(self._node, error)


def from_kafka_batched(
    topics: str | Sequence[str],
    consumer_conf: Mapping[str, Any],
    checkpoint_path: str | os.PathLike[str] | None = None,
    poll_interval: str | float = "1s",
    npartitions: int | None = None,
    refresh_partitions: bool = False,
    start: bool = False,
    dask: bool = False,
    max_batch_size: int = 10_000,
    keys: bool = False,
    checkpoints_to_keep: int = 100,
    **kwargs: Any,
) -> streamz.Stream:
    """Return a stream of lists; see ``penstock.batched.from_kafka_batched``, and streamz's own.

    With ``dask`` ranges are read, and what follows runs, on the workers, up to ``gather()``. With a
    path new partitions are always read, and ``start`` starts the stream when the first sink that
    makes checkpoints is attached. Streams of one process that have the same path share it, so that
    they can be joined.
    """
    if checkpoint_path is None:
        return _streamz_from_kafka_batched(
            topics if isinstance(topics, str) else _only(topics),
            dict(consumer_conf),
            poll_interval=poll_interval,
            npartitions=npartitions,
            refresh_partitions=refresh_partitions,
            start=start,
            dask=dask,
            max_batch_size=max_batch_size,
            keys=keys,
            **kwargs,
        )
    source = Source.of(
        [topics] if isinstance(topics, str) else topics,
        consumer_conf,
        poll_interval=poll_interval,
        max_batch_size=max_batch_size,
        npartitions=npartitions,
        keys=keys,
    )
    checkpoints = _shared(checkpoint_path, checkpoints_to_keep)
    if dask:
        from penstock.batched.on_dask import ReadOnDask, loop_of_client  # needs distributed

        ranges = FromKafkaBatched(source, checkpoints, **{**kwargs, "loop": loop_of_client()})
        stream = ReadOnDask(ranges, keys)
    else:
        ranges = FromKafkaBatched(source, checkpoints, **kwargs)
        stream = ranges.starmap(get_message_batch, keys=keys)
    ranges.starts_with_sink = start
    return stream


class Flatten(streamz.Stream):  # type: ignore[misc]
    """Emits each item of an element, and each has the element's count.

    streamz gives it to the last item alone: were that one dropped (by ``filter``, say), the range
    would count as done while the others wait in a buffer or a producer.
    """

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> Any:
        """See streamz."""
        return [result for item in x for result in self._emit(item, metadata=metadata)]


class MapAsync(streamz.core.map_async):  # type: ignore[misc]
    """Its sources end if one of its coroutines fails.

    streamz drops the element then, as if it were done, or hands nothing on any more.
    """

    work_task: Any

    def _create_task(self, coro: Any) -> Any:
        task = super()._create_task(coro)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: Any) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            if self.work_task and task is self.work_task[1]:
                self.work_task = self._create_work_task()
            _fail_sources(self, error)


class AddCheckpoint(streamz.sinks.Sink):  # type: ignore[misc]
    """Passes elements on; what comes before it is a sink that checkpoints are made for.

    As streamz's sinks it keeps itself alive, and so what feeds it: a stream knows those that follow
    it by weak references, and a sink that is gone would count as one that is done.
    """

    def __init__(self, upstream: streamz.Stream, **kwargs: Any) -> None:
        super().__init__(upstream, **kwargs)
        for source in _sources(self):
            source.makes_checkpoints = True
            if source.starts_with_sink:
                source.start()

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> Any:
        """See streamz."""
        return self._emit(x, metadata=metadata)


class ToKafka(streamz.Stream):  # type: ignore[misc]
    """Writes elements to a topic, and passes them on when they are delivered.

    An element is held until it and all before it are delivered.
    """

    def __init__(
        self, upstream: streamz.Stream, topic: str, producer_conf: Mapping[str, Any], **kwargs: Any
    ) -> None:
        super().__init__(upstream, ensure_io_loop=True, **kwargs)
        self._settings = sink_conf(producer_conf).settings()
        self._topic = topic
        conf = sender_conf(self._settings)
        with client_made(self._settings, conf):
            self._producer = Producer(conf)
        self._waiting: deque[_Written] = deque()
        self._is_polling = False

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> None:
        """Queue an element; see streamz."""
        written = _Written(x, metadata)
        while True:
            try:
                self._producer.produce(self._topic, x, on_delivery=written.note)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._retain_refs(metadata)
        self._waiting.append(written)
        if not self._is_polling:
            self._is_polling = True
            self.loop.add_callback(self._poll)

    def flush(self, timeout_s: float = -1) -> None:
        """Wait until all that is queued is delivered."""
        self._producer.flush(timeout_s)

    async def _poll(self) -> None:
        try:
            while self._waiting:
                await self._hand_on()
                await _sleep(_POLL_S)
        except BaseException as error:
            self._waiting.clear()  # they are in no checkpoint: a start reads them again
            self._is_polling = False
            _fail_sources(self, error)
        else:
            self._is_polling = False

    async def _hand_on(self) -> None:
        """Pass on what is delivered; raise KafkaError if the next element cannot be."""
        self._producer.poll(0)
        while self._waiting and self._waiting[0].is_delivered:
            written = self._waiting.popleft()
            for result in self._emit(written.value, metadata=written.metadata):
                await result
            self._release_refs(written.metadata)
        if self._waiting and (error := self._waiting[0].error) is not None:
            record = shown(None, self._waiting[0].value)
            given = (error, "write to Kafka", self._settings)
            raise kafka_error(*given, topic=self._topic, record=record)


class _Written:
    """An element that is on its way."""

    def __init__(self, value: Any, metadata: Any) -> None:
        self.value = value
        self.metadata = metadata
        self.is_delivered = False
        self.error: ClientError | None = None

    def note(self, error: ClientError | None, _: Message) -> None:
        """Take in the broker's answer."""
        self.is_delivered, self.error = error is None, error


def _to_kafka(
    self: streamz.Stream,
    topic: str | os.PathLike[str],
    producer_conf: Mapping[str, Any] | str,
    checkpoint_path: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> streamz.Stream:
    """Write elements to a topic, and make a checkpoint of each batch, if the source has a path.

    The arguments are those of ``penstock.batched``, also in the proposal's order.
    """
    topic, producer_conf, checkpoint_path = in_order(topic, producer_conf, checkpoint_path)
    sources = _sources(self)
    urls = {source._checkpoints.url for source in sources}
    if checkpoint_path is not None and {open_storage(checkpoint_path).url} != urls:
        raise ConfigError(
            f"to_kafka(checkpoint_path={os.fspath(checkpoint_path)!r}) where the source has "
            f"{', '.join(sorted(urls)) or 'none'}",
            operation="build stream",
            hint="leave it out: the path travels with the stream",
        )
    if not sources:
        return _streamz_to_kafka(self, topic, producer_conf, **kwargs)
    _check_sink(self)
    return AddCheckpoint(ToKafka(self, topic, producer_conf, **kwargs))


def _flatten(self: streamz.Stream, *args: Any, **kwargs: Any) -> streamz.Stream:
    """Make an element of each item of each element."""
    return (Flatten if _sources(self) else _streamz_flatten)(self, *args, **kwargs)


def _map_async(self: streamz.Stream, *args: Any, **kwargs: Any) -> streamz.Stream:
    """Apply a coroutine function to each element."""
    return (MapAsync if _sources(self) else _streamz_map_async)(self, *args, **kwargs)


def _emit(self: streamz.Stream, x: Any, metadata: Any = None) -> list[Any]:
    """Hand an element on; those that take it in coroutines have it until these end."""
    results: list[Any] = _streamz_emit(self, x, metadata)
    if metadata and results:
        results = [convert_yielded(each) for each in results if isawaitable(each)]
        for each in results:
            self._retain_refs(metadata)
            each.add_done_callback(partial(_release, self, metadata))
    return results


def _release(stream: streamz.Stream, metadata: Any, future: Any) -> None:
    """Give an element's count back; not if what had it failed."""
    if not future.cancelled() and future.exception() is None:
        stream._release_refs(metadata)


def _add_checkpoint(self: streamz.Stream, **kwargs: Any) -> streamz.Stream:
    """Make a checkpoint of each batch when all sinks have taken it in; follows a sink."""
    _check_sink(self)
    return AddCheckpoint(self, **kwargs)


def _shared(path: str | os.PathLike[str], keep: int) -> Checkpoints:
    """Return the checkpoints of a path: the same for all streams that have it."""
    url = open_storage(path).url
    if (found := _checkpoints.get(url)) is None:
        found = _checkpoints[url] = Checkpoints(path, keep)
    return found


def _sources(stream: streamz.Stream) -> list[FromKafkaBatched]:
    found: dict[FromKafkaBatched, None] = {}
    waiting = [stream]
    while waiting:
        each = waiting.pop()
        if isinstance(each, FromKafkaBatched):
            found[each] = None
        waiting += each.upstreams
    return list(found)


def _check_sink(stream: streamz.Stream) -> None:
    """Refuse a sink whose first checkpoint would pass what the sink did not take in."""
    if _is_on_dask(stream):
        raise ConfigError(
            "a sink on Dask without gather() is not possible: its results are on the workers, and "
            "nothing would wait for them",
            operation="build stream",
            hint="gather() before to_kafka() or add_checkpoint(); functions before it run on the "
            "workers",
        )
    if any(not (each.stopped or each.makes_checkpoints) for each in _sources(stream)):
        raise StreamingError(
            "the first sink that makes checkpoints was added to a running stream: it would not "
            "get what is in flight, but its checkpoints would cover it",
            operation="build stream",
            hint="attach it before start()",
        )


def _is_on_dask(stream: streamz.Stream) -> bool:
    """Whether its elements are futures of Dask's."""
    if (dask := sys.modules.get("streamz.dask")) is None or isinstance(stream, dask.gather):
        return False
    return isinstance(stream, dask.DaskStream) or any(map(_is_on_dask, stream.upstreams))


def _fail_sources(stream: streamz.Stream, error: BaseException) -> None:
    for source in _sources(stream):
        source.fail(error)


def _downstreams(stream: streamz.Stream) -> list[streamz.Stream]:
    found: dict[streamz.Stream, None] = {}
    waiting = [stream]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = None
            waiting += each.downstreams
    return list(found)


def _only(topics: Sequence[str]) -> str:
    if len(topics) != 1:
        raise StreamingError(
            "streamz's own from_kafka_batched reads one topic",
            operation="from_kafka_batched",
            hint="give a checkpoint_path, or use a source for each topic",
        )
    return topics[0]


async def _sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


streamz.Stream.from_kafka_batched = staticmethod(from_kafka_batched)
streamz.Stream.to_kafka = _to_kafka
streamz.Stream.flatten = _flatten
streamz.Stream.map_async = _map_async
streamz.Stream._emit = _emit
streamz.Stream.add_checkpoint = _add_checkpoint
