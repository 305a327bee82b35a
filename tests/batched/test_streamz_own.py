"""streamz's own Kafka tests, with a checkpoint path in the place of each consumer group.

They are those of the installed streamz that pass on any machine: others wait 10 s at the most for
what takes longer on busy processors. ``from_kafka`` is not replaced, so its tests are not here.
What they want of their surroundings is given: a broker (theirs is a container), and a decorator
that repeats a failed test.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import streamz
from confluent_kafka import Producer

import penstock.batched.streamz as on_streamz
from tests.kafka.broker import Broker

pytestmark = pytest.mark.soak
_number = count()


def _same(records: list[Any]) -> list[Any]:
    return records


@pytest.fixture
def own(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """streamz's module of Kafka tests, over this broker and ours."""
    once = ModuleType("flaky")
    once.flaky = lambda **_: lambda test: test  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flaky", once)
    monkeypatch.setenv("STREAMZ_LAUNCH_KAFKA", "true")
    module = importlib.import_module("streamz.tests.test_kafka")
    streams: list[Any] = []

    @contextmanager
    def service() -> Iterator[tuple[Producer, str]]:
        # Records without a key go to any partition, one by one.
        conf = {**broker.conf, "sticky.partitioning.linger.ms": 0}
        yield Producer(conf), broker.create_topic(f"own-{next(_number)}")

    def call(command: list[str]) -> None:
        options = dict(pairwise(command))
        topic, partitions = options["--topic"], int(options["--partitions"])
        (broker.create_topic if "--create" in command else broker.add_partitions)(topic, partitions)

    def from_kafka_batched(topic: str, conf: dict[str, Any], **options: Any) -> Any:
        # Two consumers of a group may be open at once, two programs on a path may not; and what a
        # stream holds that is dropped would keep its path.
        for source in streams:
            if source.stopped:
                source._close()
        path = tmp_path / conf["group.id"]
        stream = on_streamz.from_kafka_batched(topic, {**conf, **broker.conf}, path, **options)
        (source,) = on_streamz._sources(stream)
        source.makes_checkpoints = True  # they collect in lists, and mean that for a sink
        source.consumer = SimpleNamespace(close=source._close)
        streams.append(source)
        # Theirs is two nodes behind its source on Dask, and they close its consumer by that.
        return stream.map(_same) if options.get("dask") else stream

    class Ours(streamz.Stream):  # type: ignore[misc]
        def to_kafka(self, topic: str, conf: dict[str, Any]) -> Any:
            return on_streamz._to_kafka(self, topic, {**conf, **broker.conf})

    monkeypatch.setattr(module, "kafka_service", service)
    monkeypatch.setattr(module, "subprocess", SimpleNamespace(call=call))
    Ours.from_kafka_batched = staticmethod(from_kafka_batched)
    monkeypatch.setattr(module, "Stream", Ours)
    return module


@pytest.mark.parametrize(
    "name",
    [
        "test_to_kafka",
        "test_kafka_batch",
        "test_kafka_dask_batch",
        "test_kafka_batch_npartitions",
        "test_kafka_batch_checkpointing_sync_nodes",
        "test_kafka_batch_checkpointing_async_nodes_1",
    ],
)
def test_streamz_own(own: ModuleType, name: str) -> None:
    test: Callable[[], None] = getattr(own, name)
    test()
