"""The functions on streamz, in its loop and on Dask, over a real broker's topics."""

from __future__ import annotations

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

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.streamz import Stream
from penstock.errors import ConcurrentDriverError, ConfigError, StreamingError
from penstock.storage import open_storage
from tests.forked import forked
from tests.kafka.broker import Broker
from tests.kafka.test_kills import PARTITIONS, Sender
from tests.seeds import storm_seed
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

    def source(self, topic: str = "", path: Path | str = "", **options: Any) -> Stream:
        conf = {**self.broker.conf, "auto.offset.reset": "earliest", "log_level": 0}
        topics, options = [topic or self.topic], {"poll_interval": 0.05, **options}
        return Stream.from_kafka_batched(topics, conf, path or self.path, **options)

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

    def is_free(self) -> bool:
        """Whether another program could use the path."""
        checkpoints = Checkpoints(self.path)
        try:
            checkpoints.open([])
        except ConcurrentDriverError:
            return False
        checkpoints.close()
        return True


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
    with pytest.raises(ConcurrentDriverError):
        site.source().map(len).add_checkpoint().start()
    stream.stop()
    assert eventually(site.is_free)
    with pytest.raises(StreamingError, match=r"has run before.*build it again"):
        stream.start()
    again = site.source().flatten().to_kafka(site.path, site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"d"])
    site.start(again)
    assert eventually(lambda: site.checkpoint() == {"0": 2, "1": 0})
    assert site.written() == [b"a", b"b", b"c", b"d"]


def test_checkpoints_on_an_object_store(site: Site, s3_bucket: str) -> None:
    url = f"{s3_bucket}/{site.topic}"
    site.broker.produce(site.topic, [b"a", b"b"])
    site.start(site.source(path=url).flatten().to_kafka(site.out, site.broker.conf, url))
    assert eventually(lambda: open_storage(url).exists(f"{site.topic}/1.txt"))
    assert open_storage(url).read(f"{site.topic}/1.txt") == b'{"0": 1, "1": -1}'
    assert site.written() == [b"a", b"b"]


@pytest.mark.parametrize("name", ["map", "sink"])
def test_a_sink_of_ones_own_and_add_checkpoint(site: Site, name: str) -> None:
    seen: list[Any] = []
    stream = getattr(site.source().map(as_ints), name)(seen.append).add_checkpoint()
    site.broker.produce(site.topic, [b"1", b"2"])
    site.start(stream)
    assert eventually(lambda: site.checkpoint() == {"0": 1})
    assert seen == [[1, 2]]


def test_what_waits_in_an_operation_is_in_no_checkpoint(site: Site) -> None:
    stream = site.source(max_batch_size=1).flatten().partition(2).map(b" ".join)
    stream.to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"%d" % n for n in range(5)])
    site.start(stream)
    assert eventually(lambda: site.checkpoint() == {"0": 3})
    assert site.written() == [b"0 1", b"2 3"]


def test_a_sink_that_is_added_to_a_stream_that_runs(site: Site) -> None:
    stream = site.source()
    site.start(stream.map(len).add_checkpoint())
    with pytest.raises(StreamingError, match="was added to a running stream"):
        stream.flatten().to_kafka(site.out, site.broker.conf)
    with pytest.raises(ConfigError, match="the path travels with the stream"):
        site.source().to_kafka("out", site.broker.conf, checkpoint_path=site.path.parent / "other")


@pytest.mark.parametrize(
    "build",
    [
        lambda stream, site: stream.flatten().map(int).to_kafka(site.out, site.broker.conf),
        lambda stream, site: stream.buffer(2).flatten().map(int).add_checkpoint(),
        lambda stream, site: stream.flatten().to_kafka(site.out, site.broker.conf).map(int),
    ],
    ids=["before-a-sink", "behind-a-buffer", "behind-to_kafka"],
)
def test_a_function_that_fails_ends_the_stream(
    site: Site, build: Callable[[Stream, Site], Stream]
) -> None:
    stream = build(site.source(max_batch_size=1), site)
    site.broker.produce(site.topic, [b"x", b"1"])
    site.start(stream)
    assert eventually(lambda: isinstance(stream.error, ValueError))
    assert eventually(site.is_free)
    assert site.checkpoint() is None
    site.start(site.source().flatten().to_kafka(site.out, site.broker.conf))
    assert eventually(lambda: site.checkpoint() == {"0": 1})


def test_a_delivery_that_fails_ends_the_stream(site: Site) -> None:
    small = site.broker.create_topic(f"{site.out}-small", max_message_bytes="1000")
    stream = site.source().flatten().to_kafka(small, site.broker.conf)
    site.broker.produce(site.topic, [b"x" * 5000])
    site.start(stream)
    assert eventually(lambda: stream.error is not None)
    assert "max.message.bytes of the topic" in str(stream.error)
    assert site.checkpoint() is None


def test_streams_that_are_joined_have_a_path_each(site: Site, tmp_path: Path) -> None:
    other = site.broker.create_topic(f"{site.topic}-other")
    right = site.source(other, tmp_path / "right")
    joined = site.source().flatten().zip(right.flatten()).map(b"".join)
    joined.to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"1", b"2", b"3"])
    site.broker.produce(other, [b"x", b"y"])
    site.start(joined)
    assert eventually(lambda: site.written() == [b"1x", b"2y"])
    checkpoint = tmp_path / "right" / other / "1.txt"
    assert eventually(checkpoint.exists)
    assert json.loads(checkpoint.read_text()) == {"0": 1}
    assert site.checkpoint() is None  # 3 waits for its other
    site.broker.produce(other, [b"z"])
    assert eventually(lambda: site.checkpoint() == {"0": 2})


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
        stream = site.source(dask=True).map(as_ints).buffer(4).gather().flatten().map(str)
        stream.to_kafka(site.out, site.broker.conf)
        site.broker.produce(site.topic, [b"1", b"2"])
        site.broker.produce(site.topic, [b"3"], partition=1)
        site.start(stream)
        assert eventually(lambda: site.checkpoint() == {"0": 1, "1": 0})
        assert site.written() == [b"1", b"2", b"3"]
        stream.stop()
        assert eventually(site.is_free)


# -- kill -9


MOST = 500
"""The most records of a partition in a batch."""
KILLS = 8
ENDED = "The stream ends: "


def run_program(brokers: str, topic: str, out: str, path: str) -> None:
    run(brokers, topic, out, path, lambda stream: stream.map(as_ints))


def run_on_dask(brokers: str, topic: str, out: str, path: str, processes: bool = False) -> None:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=None,
        local_directory=str(Path(path).with_name("dask")),  # a killed program leaves its folder
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
        """The program's arguments."""
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

    def wait_end(self) -> None:
        """Wait until a stream ended with an error, or continued: nothing was in flight then."""
        topic, before = self._topics[0], newest(self._path, self._topics[0])
        ended = self.errors.read_text().count(ENDED)
        assert eventually(
            lambda: (
                self.errors.read_text().count(ENDED) > ended or newest(self._path, topic) > before
            )
        )

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
    """The stream ends with the range that was scattered to it; a restart reads that again."""
    numbers = Numbers(broker, tmp_path)
    with numbers.sender.running():
        for _ in range(KILLS // 2):
            with forked(run_on_dask, *numbers.args, True, errors=numbers.errors) as program:
                numbers.wait_checkpoint()
                for worker in workers_of_dask(program):
                    os.kill(worker, signal.SIGKILL)
                numbers.wait_end()
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
