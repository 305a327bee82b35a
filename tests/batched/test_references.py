"""Which elements streamz's nodes hold references to: a range is done when there are none.

A source emits elements with counts, as ``from_kafka_batched`` does with ranges; no Kafka is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import streamz
from streamz.core import RefCounter

from penstock.batched.streamz import Stream
from penstock.errors import ConfigError
from tests.waiting import WAIT_S, eventually

CONF = {"bootstrap.servers": "127.0.0.1:1"}


class Elements(Stream, streamz.Source):  # type: ignore[misc]
    """Emits elements; ``done`` has those to which nothing refers any more."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[Any] = []

    def take(self, *elements: Any) -> None:
        """Emit elements one after the other, and wait until all that is made of them is done."""
        asyncio.run_coroutine_threadsafe(self._take(elements), self.loop.asyncio_loop).result(
            WAIT_S
        )

    async def _take(self, elements: tuple[Any, ...]) -> None:
        for element in elements:
            ref = RefCounter(cb=lambda done=element: self.done.append(done), loop=self.loop)
            await self.emit(element, asynchronous=True, metadata=[{"ref": ref}])


class Slowly:
    """A coroutine function, of which nothing ends before it is told to."""

    def __init__(self, elements: Elements) -> None:
        self.begun: list[Any] = []
        self._loop = elements.loop
        self._may_end = asyncio.Event()

    async def __call__(self, element: Any) -> None:
        self.begun.append(element)
        await self._may_end.wait()

    def end(self) -> None:
        self._loop.add_callback(self._may_end.set)


@pytest.mark.parametrize(
    ("build", "seen"),
    [
        (lambda s: s.map(sum), [3, 7]),
        (lambda s: s.map(tuple).starmap(max), [2, 4]),
        (lambda s: s.pluck(1), [2, 4]),
        (lambda s: s.flatten().filter(lambda n: n % 2), [1, 3]),
        (lambda s: s.flatten().remove(lambda n: n % 2), [2, 4]),
        (lambda s: s.flatten().accumulate(lambda total, n: total + n), [1, 3, 6, 10]),
        (lambda s: s.flatten().frequencies().map(len), [1, 2, 3, 4]),
        (lambda s: s.flatten().map(lambda n: n // 4).unique(), [0, 1]),
        (lambda s: s.flatten().partition(2), [(1, 2), (3, 4)]),
        (lambda s: s.zip(s.map(len)), [([1, 2], 2), ([3, 4], 2)]),
        (lambda s: s.flatten().union(s.map(len)), [1, 2, 2, 3, 4, 2]),
        (lambda s: s.buffer(1).flatten().rate_limit(0.001), [1, 2, 3, 4]),
        (lambda s: s.gather().map(tuple), [(1, 2), (3, 4)]),
    ],
)
def test_each_node_gives_its_references_back(
    build: Callable[[Stream], Stream], seen: list[Any]
) -> None:
    found: list[Any] = []
    elements = Elements()
    sink = build(elements).sink(found.append)
    elements.take([1, 2], [3, 4])
    assert eventually(lambda: elements.done == [[1, 2], [3, 4]])
    assert found == seen
    sink.destroy()


@pytest.mark.parametrize(
    ("build", "waiting"),
    [
        (lambda s: s.partition(3), [1, 2]),
        (lambda s: s.zip(s.filter(lambda n: n < 2)), [2]),
        (lambda s: s.combine_latest(s.filter(lambda n: n < 2)), [1, 2]),
        (lambda s: s.sliding_window(2), [2]),
    ],
)
def test_what_waits_in_a_node_is_not_done(
    build: Callable[[Stream], Stream], waiting: list[int]
) -> None:
    elements = Elements()
    sink = build(elements).sink(lambda _: None)
    elements.take(1, 2)
    left = [n for n in (1, 2) if n not in waiting]
    assert eventually(lambda: elements.done == left)
    sink.destroy()


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.map(str),
        lambda s: s.rate_limit(0.001),
        lambda s: s.zip(s.map(str)),
        lambda s: s.sliding_window(1),
        lambda s: s.partition(1),
        lambda s: s.buffer(1),
    ],
)
def test_what_a_coroutine_has_is_not_done(build: Callable[[Stream], Stream]) -> None:
    """Neither behind nodes that hand on in a coroutine, nor behind those that join elements."""
    elements = Elements()
    slowly = Slowly(elements)
    sink = build(elements).sink(slowly)
    taken = asyncio.run_coroutine_threadsafe(elements._take((1,)), elements.loop.asyncio_loop)
    assert eventually(lambda: len(slowly.begun) == 1)
    assert not elements.done
    slowly.end()
    taken.result(WAIT_S)
    assert eventually(lambda: elements.done == [1])
    sink.destroy()


def test_what_a_filter_drops_does_not_end_its_range() -> None:
    elements = Elements()
    slowly = Slowly(elements)
    sink = elements.flatten().filter(lambda n: n > 0).buffer(9).sink(slowly)
    elements.take([1, 2, 0])
    assert eventually(lambda: len(slowly.begun) == 1)
    assert not elements.done
    slowly.end()
    assert eventually(lambda: elements.done == [[1, 2, 0]])
    sink.destroy()


def test_what_failed_is_not_done() -> None:
    elements = Elements()
    sink = elements.partition(1).rate_limit(0.001).map(int).sink(lambda _: None)
    with pytest.raises(TypeError):
        elements.take(1)
    assert not elements.done
    sink.destroy()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("collect", ()),
        ("delay", (1,)),
        ("latest", ()),
        ("map_async", (asyncio.sleep,)),
        ("partition_unique", (2,)),
        ("slice", (1,)),
        ("timed_window", (1,)),
        ("timed_window_unique", (1,)),
    ],
)
def test_other_nodes_are_refused_by_name(tmp_path: Path, name: str, args: tuple[Any, ...]) -> None:
    stream = Stream.from_kafka_batched(["t"], CONF, tmp_path)
    sink = stream.map(len).add_checkpoint()
    node = getattr(stream, name)(*args)
    with pytest.raises(ConfigError, match=rf"{name}\(\) is refused"):
        stream.start()
    node.destroy()
    sink.destroy()


def test_a_stream_whose_sinks_make_no_checkpoints_is_refused(tmp_path: Path) -> None:
    stream = Stream.from_kafka_batched(["t"], CONF, tmp_path)
    sink = stream.sink(print)
    with pytest.raises(ConfigError, match=r"no sink makes checkpoints.*add_checkpoint\(\)"):
        stream.start()
    sink.destroy()


def test_a_group_that_time_ends_is_refused(tmp_path: Path) -> None:
    stream = Stream.from_kafka_batched(["t"], CONF, tmp_path)
    with pytest.raises(TypeError, match="timeout"):
        stream.partition(2, timeout=1)


def test_a_sink_on_dask_needs_gather(tmp_path: Path) -> None:
    """Its results are on the workers: nothing would wait for them."""
    stream = Stream.from_kafka_batched(["t"], CONF, tmp_path, dask=True).map(len)
    gathered = stream.gather().add_checkpoint()
    sink = stream.sink(print)
    with pytest.raises(ConfigError, match=r"sink\(\) is refused.*on Dask, gather\(\) first"):
        stream.start()
    sink.destroy()
    gathered.destroy()


def test_streams_of_streamz_itself_stay_as_they_are() -> None:
    assert not hasattr(streamz.Stream, "add_checkpoint")
    assert isinstance(streamz.Stream().flatten(), streamz.core.flatten)
    assert not isinstance(streamz.Stream().map(len), Stream)
