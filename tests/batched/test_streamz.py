"""The functions on streamz's own streams, in its loop and on its Dask backend."""

from __future__ import annotations

import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from streamz import Stream

import penstock.batched.streamz as on_streamz
from penstock.errors import ConcurrentDriverError, ConfigError
from tests.forked import forked
from tests.kafka.broker import Broker
from tests.kafka.test_kills import PARTITIONS, Sender
from tests.waiting import eventually

from .functions import as_ints
from .reading import read_topic
from .test_random_kills import done, newest

pytestmark = pytest.mark.slow
_number = count()


class Site:
    def __init__(self, broker: Broker, path: Path) -> None:
        self.broker = broker
        self.path = path
        self.topic = broker.create_topic(f"streamz-{next(_number)}", partitions=2)
        self.out = broker.create_topic(f"{self.topic}-out")
        self.started: list[Stream] = []

    def source(self, **options: Any) -> Stream:
        conf = {**self.broker.conf, "auto.offset.reset": "earliest"}
        options = {"poll_interval": 0.05, "checkpoint_path": self.path, **options}
        return Stream.from_kafka_batched([self.topic], conf, **options)

    def start(self, stream: Stream) -> Stream:
        self.started.append(stream)
        stream.start()
        return stream

    def stop(self) -> None:
        for stream in self.started:
            stream.stop()

    def checkpoint(self) -> Any:
        files = {int(each.stem): each for each in (self.path / self.topic).glob("*.txt")}
        number = max(files, default=0)
        return json.loads(files[number].read_text()) if number else None

    def written(self) -> list[bytes]:
        return sorted(filter(None, read_topic(self.broker, self.out)))


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Iterator[Site]:
    site = Site(broker, tmp_path / "path")
    yield site
    site.stop()


def test_the_program_of_the_proposal(site: Site) -> None:
    stream = site.source()
    stream.map(lambda values: [bytes(v) for v in values]).flatten().to_kafka(
        site.out, site.broker.conf, checkpoint_path=site.path
    )
    site.broker.produce(site.topic, [b"a", b"b"])
    site.broker.produce(site.topic, [b"c"], partition=1)
    site.start(stream)
    assert eventually(lambda: site.checkpoint() == {"0": 1, "1": 0})
    assert site.written() == [b"a", b"b", b"c"]
    stream.stop()
    assert eventually(lambda: not on_streamz._sources(stream)[0]._checkpoints.is_open)
    again = site.source()
    again.flatten().to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"d"])
    site.start(again)
    assert eventually(lambda: site.checkpoint() == {"0": 2, "1": 0})
    assert site.written() == [b"a", b"b", b"c", b"d"]


def test_a_sink_of_ones_own_and_add_checkpoint(site: Site) -> None:
    seen: list[Any] = []
    stream = site.source().map(as_ints).map(seen.append).add_checkpoint()
    site.broker.produce(site.topic, [b"1", b"2"])
    site.start(stream)
    assert eventually(lambda: site.checkpoint() == {"0": 1})
    assert seen == [[1, 2]]


def test_printing_is_no_sink(site: Site) -> None:
    seen: list[Any] = []
    stream = site.source()
    stream.sink(seen.append)
    site.broker.produce(site.topic, [b"1"])
    site.start(stream)
    assert eventually(lambda: seen == [[b"1"]])
    assert site.checkpoint() is None


def test_what_waits_in_an_operation_is_in_no_checkpoint(site: Site) -> None:
    stream = site.source(max_batch_size=1).flatten().partition(2).map(b" ".join)
    stream.to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"%d" % n for n in range(5)])
    site.start(stream)
    assert eventually(lambda: site.checkpoint() == {"0": 3})
    assert site.written() == [b"0 1", b"2 3"]


def test_a_function_that_fails_gets_into_no_checkpoint(site: Site) -> None:
    stream = site.source(max_batch_size=1).flatten().map(int)
    stream.map(str).to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"1", b"x", b"3"])
    site.start(stream)
    (source,) = on_streamz._sources(stream)
    assert eventually(lambda: source.error is not None)
    assert isinstance(source.error, ValueError)
    assert site.checkpoint() in (None, {"0": 0})
    assert b"3" not in site.written()


def test_two_streams_on_one_path(site: Site) -> None:
    stream = site.start(site.source())
    with pytest.raises(ConcurrentDriverError):
        site.source().start()
    with pytest.raises(ConfigError, match="the path travels with the stream"):
        stream.to_kafka("out", site.broker.conf, checkpoint_path=site.path.parent / "other")


def test_streams_that_are_joined(site: Site) -> None:
    other = site.broker.create_topic(f"{site.topic}-other")
    conf = {**site.broker.conf, "auto.offset.reset": "earliest"}
    right = Stream.from_kafka_batched([other], conf, site.path, poll_interval=0.05)
    joined = site.source().flatten().zip(right.flatten()).map(b"".join)
    joined.to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"1", b"2", b"3"])
    site.broker.produce(other, [b"x", b"y"])
    site.start(joined)
    assert eventually(lambda: site.written() == [b"1x", b"2y"])
    assert eventually(lambda: (site.path / other / "1.txt").exists())
    assert json.loads((site.path / other / "1.txt").read_text()) == {"0": 1}
    assert site.checkpoint() is None  # 3 waits for its other
    site.broker.produce(other, [b"z"])
    assert eventually(lambda: site.checkpoint() == {"0": 2})


def test_without_a_path_it_is_streamz_own(site: Site) -> None:
    seen: list[Any] = []
    conf = {**site.broker.conf, "auto.offset.reset": "earliest", "group.id": site.topic}
    stream = Stream.from_kafka_batched(site.topic, conf, poll_interval=0.05)
    stream.sink(seen.append)
    site.broker.produce(site.topic, [b"1"])
    stream.start()
    assert eventually(lambda: seen == [[b"1"]])
    stream.stop()


def test_on_dask(site: Site) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
            ) as cluster,
            Client(cluster),
        ):
            stream = site.source(dask=True)
            stream.map(as_ints).buffer(4).gather().flatten().map(str).to_kafka(
                site.out, site.broker.conf
            )
            site.broker.produce(site.topic, [b"1", b"2"])
            site.broker.produce(site.topic, [b"3"], partition=1)
            site.start(stream)
            assert eventually(lambda: site.checkpoint() == {"0": 1, "1": 0})
            assert site.written() == [b"1", b"2", b"3"]
            stream.stop()
            assert eventually(lambda: not on_streamz._sources(stream)[0]._checkpoints.is_open)


# -- kill -9


MOST = 500
"""So many records of a partition are in a batch."""
KILLS = 8


def run_program(brokers: str, topic: str, out: str, path: str) -> None:
    conf = {"bootstrap.servers": brokers, "auto.offset.reset": "earliest"}
    stream = Stream.from_kafka_batched(
        [topic], conf, checkpoint_path=path, poll_interval=0.01, max_batch_size=MOST
    )
    stream.flatten().to_kafka(out, {"bootstrap.servers": brokers})
    stream.start()
    Event().wait()


def test_kills_at_random(broker: Broker, tmp_path: Path) -> None:
    topic, out = (broker.create_topic(f"streamz-{n}", PARTITIONS) for n in ("killed", "copy"))
    path, errors = tmp_path / "path", tmp_path / "errors"
    program = (run_program, broker.address, topic, out, str(path))
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    sender = Sender(broker, topic)
    with sender.running():
        for _ in range(KILLS):
            before = newest(path, topic)
            with forked(*program, errors=errors):
                moved = eventually(lambda before=before: newest(path, topic) > before)
                assert moved, errors.read_text()[-3000:]
                time.sleep(0.2 * moments.random())
    with forked(*program, errors=errors):
        assert eventually(lambda: done(path, topic) == sender.sent), errors.read_text()[-3000:]
    times = Counter(value for p in range(PARTITIONS) for value in read_topic(broker, out, p))
    assert times.keys() == {f"line {n}".encode() for n in range(sender.sent)}, f"seed {seed}"
    assert sum(times.values()) - len(times) <= KILLS * PARTITIONS * MOST, f"seed {seed}"
