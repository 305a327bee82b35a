"""The functions on streamz's own streams, in its loop and on its Dask backend."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest
from streamz import Stream

import penstock.batched.streamz as on_streamz
from penstock.batched.rewind import apply_rewind, plan_rewind
from penstock.errors import ConcurrentDriverError, ConfigError, StreamingError
from penstock.storage import open_storage
from tests.forked import forked
from tests.kafka.broker import Broker
from tests.kafka.test_kills import PARTITIONS, Sender
from tests.seeds import storm_seed
from tests.waiting import WAIT_S, eventually

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
        self.most = 0

    def source(self, **options: Any) -> Stream:
        conf = {**self.broker.conf, "auto.offset.reset": "earliest", "log_level": 0}
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
        found = json.loads(files[number].read_text()) if number else {}
        return {partition: last for partition, last in found.items() if last >= 0} or None

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


def test_checkpoints_on_an_object_store(site: Site, s3_bucket: str) -> None:
    url = f"{s3_bucket}/{site.topic}"
    for values in ([b"a", b"b"], [b"c"]):
        site.broker.produce(site.topic, values)
        stream = site.source(checkpoint_path=url)
        stream.flatten().to_kafka(site.out, site.broker.conf, checkpoint_path=url)
        site.start(stream)
        assert eventually(lambda last=values[-1]: last in site.written())
        assert eventually(lambda: not open_storage(url).exists("dirty_bit"))
        stream.stop()
        assert eventually(lambda s=stream: not on_streamz._sources(s)[0]._checkpoints.is_open)
    assert site.written() == [b"a", b"b", b"c"]
    assert open_storage(url).read(f"{site.topic}/2.txt") == b'{"0": 2, "1": -1}'


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


def test_what_a_coroutine_has_is_in_no_checkpoint(site: Site) -> None:
    stream = site.source().flatten().rate_limit(1)
    stream.to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"1", b"2", b"3"])
    site.start(stream)
    assert eventually(lambda: site.checkpoint() is not None)
    assert site.written() == [b"1", b"2", b"3"]


def test_what_a_sink_of_coroutines_has_is_in_no_checkpoint(site: Site) -> None:
    seen: list[Any] = []

    async def slowly(value: bytes) -> bytes:
        await asyncio.sleep(0.5)
        seen.append(value)
        return value

    stream = site.source().flatten()
    stream.map_async(slowly).add_checkpoint()
    stream.sink(slowly)
    site.broker.produce(site.topic, [b"1", b"2"])
    site.start(stream)
    assert eventually(lambda: site.checkpoint() == {"0": 1})
    assert sorted(seen) == [b"1", b"1", b"2", b"2"]


@pytest.mark.parametrize("after", [False, True], ids=["its-own", "after-it"])
def test_a_coroutine_that_fails_stops_the_source(site: Site, after: bool) -> None:
    async def as_int(value: bytes) -> Any:
        return value if after else int(value)

    stream = site.source(max_batch_size=1)
    made = stream.flatten().map_async(as_int)
    (made.map(int) if after else made).map(str).to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"1", b"x"])
    site.start(stream)
    (source,) = on_streamz._sources(stream)
    assert eventually(lambda: isinstance(source.error, ValueError))
    assert site.checkpoint() in (None, {"0": 0})
    site.broker.produce(site.topic, [b"2"])
    apply_rewind(site.path, plan_rewind(site.path, offsets={site.topic: {0: 1}}))
    stream.start()
    assert eventually(lambda: site.checkpoint() == {"0": 2})


def test_a_sink_that_is_added_to_a_stream_that_runs(site: Site) -> None:
    seen: list[Any] = []
    stream = site.source()
    stream.sink(seen.append)
    site.start(stream)
    with pytest.raises(StreamingError, match="was added to a running stream"):
        stream.flatten().to_kafka(site.out, site.broker.conf)


def test_start_when_a_sink_is_attached(site: Site) -> None:
    site.broker.produce(site.topic, [b"1"])
    stream = site.source(start=True)
    time.sleep(0.3)  # nothing is emitted meanwhile
    site.started.append(stream.flatten().to_kafka(site.out, site.broker.conf))
    site.started.append(stream)
    assert eventually(lambda: site.checkpoint() == {"0": 0})
    assert site.written() == [b"1"]


def test_a_record_that_cannot_be_queued_holds_no_other_back(site: Site) -> None:
    other = site.broker.create_topic(f"{site.topic}-other")
    conf = {**site.broker.conf, "auto.offset.reset": "earliest"}
    right = Stream.from_kafka_batched([other], conf, site.path, poll_interval=0.05)
    joined = site.source().map(as_ints).union(right).flatten()
    joined.to_kafka(site.out, site.broker.conf)
    site.started.append(right)
    site.broker.produce(site.topic, [b"1"])  # an int
    site.start(joined)
    (good,) = on_streamz._sources(right)
    (bad,) = {*on_streamz._sources(joined)} - {good}
    assert eventually(lambda: bad.error is not None)
    site.broker.produce(other, [b"x"])
    assert eventually(lambda: (site.path / other / "1.txt").exists())
    assert good.error is None
    assert site.written() == [b"x"]


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


def test_what_a_filter_drops_does_not_end_its_range(site: Site) -> None:
    slow = {**site.broker.conf, "linger.ms": 1500}
    stream = site.source()
    stream.flatten().filter(lambda value: value != b"drop").to_kafka(site.out, slow)
    site.broker.produce(site.topic, [b"1", b"2", b"drop"])
    site.start(stream)
    assert eventually(lambda: site.checkpoint() is not None)
    assert site.written() == [b"1", b"2"]


def test_a_function_that_fails_behind_a_buffer(site: Site) -> None:
    stream = site.source(max_batch_size=1).buffer(2).flatten().map(int)
    stream.map(str).to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"1", b"x", *[b"3"] * 10])
    site.start(stream)
    (source,) = on_streamz._sources(stream)
    assert eventually(lambda: source.error is not None)
    assert isinstance(source.error, ValueError)
    assert b"3" not in site.written()
    with pytest.raises(StreamingError, match=r"buffer emits no more elements.*'x'"):
        stream.start()
    again = site.source().buffer(2).flatten()  # the path is free
    again.to_kafka(site.out, site.broker.conf)
    site.start(again)
    assert eventually(lambda: site.checkpoint() == {"0": 11})


def test_a_function_that_fails_behind_a_buffer_of_two_sources(site: Site) -> None:
    other = site.broker.create_topic(f"{site.topic}-other")
    conf = {**site.broker.conf, "auto.offset.reset": "earliest"}
    right = Stream.from_kafka_batched([other], conf, site.path, poll_interval=0.05)
    joined = site.source().union(right).buffer(1).flatten().map(int)
    joined.map(str).to_kafka(site.out, site.broker.conf)
    site.start(joined)
    site.broker.produce(other, [b"x"])
    sources = on_streamz._sources(joined)
    assert eventually(lambda: all(isinstance(each.error, ValueError) for each in sources))
    assert not sources[0]._checkpoints.is_open


def test_a_function_that_fails_behind_to_kafka(site: Site) -> None:
    stream = site.source(max_batch_size=1)
    written = stream.flatten().to_kafka(site.out, site.broker.conf)
    written.map(int).sink(print)
    site.broker.produce(site.topic, [b"x", b"1"])
    site.start(stream)
    (source,) = on_streamz._sources(stream)
    assert eventually(lambda: isinstance(source.error, ValueError))
    assert eventually(lambda: not source._checkpoints.is_open)


def test_a_start_after_a_delivery_that_failed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    small = site.broker.create_topic(f"{site.out}-small", max_message_bytes="1000")
    stream = site.source()
    stream.flatten().map(lambda value: value[: site.most]).to_kafka(small, site.broker.conf)
    site.most = 5000
    site.broker.produce(site.topic, [b"x" * 5000])
    site.start(stream)
    (source,) = on_streamz._sources(stream)
    assert eventually(lambda: source.error is not None)
    assert "max.message.bytes of the topic" in str(source.error)
    assert f"topic={small} record=key None, value b'xxx" in str(source.error)
    site.most = 10
    topic_ids = source._checkpoints.topic_ids

    def slowly() -> Any:
        # The loop wakes earlier sleepers first: the run before looks whether it has ended.
        polled = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), source.loop.asyncio_loop)
        polled.result(WAIT_S)
        return topic_ids()

    monkeypatch.setattr(source._checkpoints, "topic_ids", slowly)
    stream.start()
    assert eventually(lambda: site.checkpoint() == {"0": 0})
    assert source.error is None


def test_secrets_of_a_sink_may_be_in_files(site: Site, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("tell-nobody")
    conf = {**site.broker.conf, "security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann"}
    conf |= {"sasl.mechanism": "PLAIN", "sasl.password.file": str(secret)}
    site.source().flatten().to_kafka(site.out, conf)


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
    stream.upstreams[0].consumer.close()  # theirs is open for as long as something refers to it


@contextmanager
def dask_in_this_process(threads: int = 1) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dask
        from distributed import Client, LocalCluster

        with (
            TemporaryDirectory() as scratch,  # Dask leaves its folder there
            dask.config.set({"temporary-directory": scratch}),
            LocalCluster(
                n_workers=1, threads_per_worker=threads, processes=False, dashboard_address=None
            ) as cluster,
            Client(cluster),
        ):
            yield


def test_on_dask(site: Site) -> None:
    with dask_in_this_process(threads=2):
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


def test_a_sink_on_dask_needs_gather(site: Site) -> None:
    """Its results are on the workers: nothing would wait for them."""
    with dask_in_this_process():
        stream = site.source(dask=True).map(as_ints)
        with pytest.raises(ConfigError, match=r"a sink on Dask without gather\(\)"):
            stream.add_checkpoint()
        with pytest.raises(ConfigError, match=r"a sink on Dask without gather\(\)"):
            stream.buffer(2).to_kafka(site.out, site.broker.conf)


# -- kill -9


MOST = 500
"""So many records of a partition are in a batch."""
KILLS = 8


def run_program(brokers: str, topic: str, out: str, path: str) -> None:
    run(brokers, topic, out, path, lambda stream: stream.map(as_ints))


def run_on_dask(brokers: str, topic: str, out: str, path: str, processes: bool = False) -> None:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=processes, dashboard_address=None
    )
    with Client(cluster):
        run(brokers, topic, out, path, lambda s: s.map(as_ints).buffer(4).gather(), dask=True)


def run(
    brokers: str, topic: str, out: str, path: str, process: Callable[[Stream], Stream], **more: Any
) -> None:
    conf = {"bootstrap.servers": brokers, "auto.offset.reset": "earliest"}
    stream = Stream.from_kafka_batched(
        [topic], conf, checkpoint_path=path, poll_interval=0.01, max_batch_size=MOST, **more
    )
    process(stream).flatten().map(str).to_kafka(out, {"bootstrap.servers": brokers})
    stream.start()
    Event().wait()


class Numbers:
    """A topic that numbers are sent to, its copy, and the path of the program between the two."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        number = next(_number)
        self._topics = [broker.create_topic(f"killed-{number}-{n}", PARTITIONS) for n in (1, 2)]
        self._broker = broker
        self._path, self.errors = folder / "path", folder / "errors"
        self.sender = Sender(broker, self._topics[0], "%d")
        seed = storm_seed()
        self.moments, self.told = random.Random(seed), f"seed {seed}"

    @property
    def args(self) -> tuple[str, ...]:
        """Of the program."""
        return (self._broker.address, *self._topics, str(self._path))

    def wait_checkpoint(self) -> None:
        """Wait until there is one more, and some time longer."""
        topic, before = self._topics[0], newest(self._path, self._topics[0])
        assert eventually(lambda: newest(self._path, topic) > before), self._log()
        time.sleep(0.2 * self.moments.random())

    def wait_all(self) -> None:
        """Wait until all that was sent is done."""
        topic, path = self._topics[0], self._path
        assert eventually(lambda: done(path, topic) == self.sender.sent), self._log()

    def check(self, most_twice: int) -> None:
        times = Counter(
            value
            for p in range(PARTITIONS)
            for value in read_topic(self._broker, self._topics[1], p)
        )
        assert times.keys() == {b"%d" % n for n in range(self.sender.sent)}, self.told
        assert times.total() - len(times) <= most_twice, self.told

    def _log(self) -> str:
        return f"{self.told}: {self.errors.read_text()[-3000:]}"


@pytest.mark.storm
@pytest.mark.parametrize(
    ("program", "kills"),
    [
        pytest.param(run_program, KILLS, id="streamz"),
        pytest.param(run_on_dask, KILLS // 2, id="dask"),
        pytest.param(run_program, 20, id="streamz-twenty", marks=pytest.mark.soak),
        pytest.param(run_on_dask, 20, id="dask-twenty", marks=pytest.mark.soak),
    ],
)
def test_kills_at_random(
    broker: Broker, tmp_path: Path, program: Callable[..., None], kills: int
) -> None:
    numbers = Numbers(broker, tmp_path)
    with numbers.sender.running():
        for _ in range(kills):
            with forked(program, *numbers.args, errors=numbers.errors):
                numbers.wait_checkpoint()
    with forked(program, *numbers.args, errors=numbers.errors):
        numbers.wait_all()
    numbers.check(kills * PARTITIONS * MOST)


@pytest.mark.storm
def test_workers_of_dask_are_killed(broker: Broker, tmp_path: Path) -> None:
    """What they had read is read again by others: the program goes on."""
    numbers = Numbers(broker, tmp_path)
    with (
        numbers.sender.running(),
        forked(run_on_dask, *numbers.args, True, errors=numbers.errors) as program,
    ):
        for _ in range(KILLS // 2):
            numbers.wait_checkpoint()
            os.kill(numbers.moments.choice(workers_of_dask(program)), signal.SIGKILL)
        numbers.wait_checkpoint()
    with forked(run_on_dask, *numbers.args, errors=numbers.errors):
        numbers.wait_all()
    numbers.check(KILLS * PARTITIONS * MOST)


def workers_of_dask(program: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == program and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found
