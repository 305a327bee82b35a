"""Programs over a real broker's topics."""

from __future__ import annotations

import gc
import os
import re
import runpy
import signal
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import patience
from penstock.batched import Stream, from_kafka_batched, get_message_batch
from penstock.batched.sources import Position
from penstock.errors import (
    BatchFailedError,
    ConcurrentDriverError,
    ConfigError,
    KafkaDataLossError,
    KafkaError,
    StreamingError,
)
from tests.faults.driver import Driver
from tests.kafka.broker import Broker
from tests.kafka.clients import living_clients
from tests.waiting import WAIT_S, eventually

from .functions import add, as_bytes, as_ints, fail, is_even, note
from .reading import read_topic
from .site import Site

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_program_of_the_proposal(site: Site) -> None:
    conf = {**site.broker.conf, "auto.offset.reset": "earliest"}
    stream = from_kafka_batched([site.topic], conf, checkpoint_path=site.path, poll_interval="0.3s")
    stream.map(lambda values: [bytes(v) for v in values]).flatten().to_kafka(site.out, conf)
    site.broker.produce(site.topic, [b"a", b"b"])
    site.broker.produce(site.topic, [b"c"], partition=1)
    site.start(stream)
    site.wait({"0": 1, "1": 0})
    assert sorted(map(str, site.written())) == ["b'a'", "b'b'", "b'c'"]
    assert [each.name for each in (site.path / site.topic).iterdir()] == ["1.txt"]
    stream.stop()
    stream.awaitTermination()
    site.broker.produce(site.topic, [b"d"])
    site.start(stream)
    site.wait({"0": 2, "1": 0})
    assert len(site.written()) == 4


def test_each_operation(site: Site) -> None:
    seen: dict[str, list[Any]] = {}

    def into(name: str) -> Callable[[Any], None]:
        return seen.setdefault(name, []).append

    numbers = site.source().map(as_ints)
    flat = numbers.flatten()
    numbers.gather().sink(into("lists"))
    flat.filter(is_even).gather().sink(into("even"))
    flat.map(lambda n: (n, -n)).starmap(add).gather().sink(into("starmap"))
    flat.map(lambda n: {"n": n, "m": 0}).pluck("n").gather().sink(into("pluck"))
    flat.map(lambda n: (n, 1, 2)).pluck([2, 0]).gather().sink(into("several"))
    flat.accumulate(add, start=0).gather().sink(into("sums"))
    flat.accumulate(lambda s, n: (s + 1, (s, n)), start=0, returns_state=True).gather().sink(
        into("counted")
    )
    flat.partition(3).gather().sink(into("partition"))
    flat.zip(flat.map(lambda n: n * 10)).gather().sink(into("zip"))
    flat.union(flat.filter(is_even)).gather().sink(into("union"))
    flat.combine_latest(flat.map(lambda n: n * 10)).gather().sink(into("latest"))
    flat.gather().map(as_bytes).to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"0", b"1", b"2"])
    site.broker.produce(site.topic, [b"3"], partition=1)
    site.start(numbers)
    assert eventually(lambda: len(site.written()) == 4)
    numbers.stop()
    assert seen == {
        "lists": [[0, 1, 2], [3]],
        "even": [0, 2],
        "starmap": [0, 0, 0, 0],
        "pluck": [0, 1, 2, 3],
        "several": [(2, 0), (2, 1), (2, 2), (2, 3)],
        "sums": [0, 1, 3, 6],
        "counted": [(0, 0), (1, 1), (2, 2), (3, 3)],
        "partition": [(0, 1, 2)],
        "zip": [(0, 0), (1, 10), (2, 20), (3, 30)],
        "union": [0, 0, 1, 2, 2, 3],
        "latest": [(0, 0), (0, 10), (1, 10), (1, 20), (2, 20), (2, 30), (3, 30)],
    }


def test_what_waits_in_an_operation_is_in_no_checkpoint(site: Site) -> None:
    groups = site.source(max_batch_size=2).flatten().partition(3)
    groups.map(lambda group: b" ".join(group)).to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"%d" % n for n in range(8)])
    site.start(groups)
    site.wait({"0": 5})  # 6 and 7 wait for a third
    groups.stop()
    assert site.written() == [b"0 1 2", b"3 4 5"]
    site.broker.produce(site.topic, [b"8"])
    site.start(groups)
    site.wait({"0": 8})
    assert site.written()[2:] == [b"6 7 8"]


def test_a_sink_of_ones_own_and_add_checkpoint(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    stream = site.source().map(as_ints).sink(note, str(folder)).add_checkpoint()
    site.broker.produce(site.topic, [b"1", b"2"])
    site.start(stream)
    site.wait({"0": 1})
    assert [each.read_text() for each in folder.iterdir()] == ["[1, 2]"]


def test_printing_is_no_sink(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    stream = site.source().sink(note, str(folder))
    site.broker.produce(site.topic, [b"1"])
    site.start(stream)
    assert eventually(lambda: any(folder.iterdir()))
    stream.stop()
    assert site.checkpoint() is None
    for file in folder.iterdir():
        file.unlink()
    site.start(stream)  # the same again
    assert eventually(lambda: any(folder.iterdir()))


def test_all_topics_of_joined_streams_are_checkpointed(site: Site) -> None:
    second, third = (site.broker.create_topic(f"{site.topic}-{n}") for n in (2, 3))
    left, right = site.source(site.topic, second), site.source(third)
    site.broker.produce(site.topic, [b"1", b"2"])
    site.broker.produce(second, [b"3"])
    site.broker.produce(third, [b"4"])
    site.start(left.union(right).flatten().to_kafka(site.out, site.broker.conf, site.path))
    site.wait({"0": 1})
    site.wait({"0": 0}, second)
    site.wait({"0": 0}, third)
    assert sorted(filter(None, site.written())) == [b"1", b"2", b"3", b"4"]


def test_keys_records_without_a_value_and_only_the_first_partition(site: Site) -> None:
    site.broker.produce(site.topic, [b"v", None], key=b"k")
    site.broker.produce(site.topic, [b"not read"], partition=1)
    seen: list[Any] = []
    stream = site.source(keys=True, npartitions=1).gather().sink(seen.extend).add_checkpoint()
    site.start(stream)
    site.wait({"0": 1})
    assert seen == [{"key": b"k", "value": b"v"}, {"key": b"k", "value": None}]


def test_batches_of_at_most_so_many_records(site: Site) -> None:
    site.broker.produce(site.topic, [b"%d" % n for n in range(10)])
    sizes: list[int] = []
    stream = site.source(max_batch_size=4, poll_interval=60).gather()
    site.start(stream.map(len).sink(sizes.append).add_checkpoint())
    site.wait({"0": 9})  # what waits already is read without a wait
    assert sizes == [4, 4, 2]


def test_new_partitions_are_read_from_their_beginning(site: Site) -> None:
    stream = site.source().flatten().to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"1"])
    site.start(stream)
    site.wait({"0": 0})
    site.broker.add_partitions(site.topic, 3)
    site.broker.produce(site.topic, [b"2", b"3"], partition=2)
    site.wait({"0": 0, "2": 1})


def test_latest_is_asked_once_in_the_life_of_a_path(site: Site) -> None:
    site.broker.produce(site.topic, [b"before"])
    conf = {**site.broker.conf, "auto.offset.reset": "latest"}
    stream = from_kafka_batched(site.topic, conf, site.path, poll_interval=60)
    sink = stream.flatten().to_kafka(site.out, site.broker.conf)
    site.start(sink)
    stream.stop()
    site.broker.produce(site.topic, [b"between"])
    site.start(sink)
    site.wait({"0": 1})
    assert site.written() == [b"between"]


def test_without_a_path_there_are_no_files(site: Site, tmp_path: Path) -> None:
    site.broker.produce(site.topic, [b"1"])
    site.start(site.source(checkpoint_path=None).flatten().to_kafka(site.out, site.broker.conf))
    assert eventually(lambda: site.written() == [b"1"])
    assert not any(tmp_path.iterdir())


def test_a_program_that_was_stopped_leaves_no_client(site: Site) -> None:
    gc.collect()  # those of earlier tests
    before = living_clients()
    stream = site.start(site.source().flatten().to_kafka(site.out, site.broker.conf))
    assert living_clients() - before
    stream.stop()
    assert eventually(lambda: living_clients() <= before)


def test_a_batch_that_fails_ends_the_program(site: Site) -> None:
    site.broker.produce(site.topic, [b"1"])
    stream = site.source().flatten().map(fail).to_kafka(site.out, site.broker.conf)
    stream.start()
    with pytest.raises(BatchFailedError, match=rf"{site.topic}/0 \[0, 1\).*no good"):
        stream.awaitTermination()
    assert site.checkpoint() is None
    site.start(site.source().flatten().to_kafka(site.out, site.broker.conf))
    site.wait({"0": 0})


def test_what_a_program_that_runs_refuses(site: Site) -> None:
    source = site.source()
    stream = source.flatten().to_kafka(site.out, site.broker.conf)
    with pytest.raises(StreamingError, match="not started"):
        stream.awaitTermination()
    site.start(stream)
    with pytest.raises(StreamingError, match="runs already"):
        source.start()
    with pytest.raises(StreamingError, match="was added to a program that runs"):
        source.map(len)
    with pytest.raises(ConcurrentDriverError):
        site.source().flatten().to_kafka(site.out, site.broker.conf).start()


def test_start_when_a_sink_is_attached(site: Site) -> None:
    site.broker.produce(site.topic, [b"1"])
    source = site.source(start=True).flatten()
    site.started.append(source.to_kafka(site.out, site.broker.conf))
    site.wait({"0": 0})


def test_a_topic_that_is_shorter_than_its_checkpoint(site: Site) -> None:
    (site.path / site.topic).mkdir(parents=True)
    (site.path / site.topic / "1.txt").write_text("{0: 99}")
    stream = site.source().flatten().to_kafka(site.out, site.broker.conf)
    stream.start()
    with pytest.raises(KafkaDataLossError, match=f"{site.topic}/0 ends at 0, before 100"):
        stream.awaitTermination()


def test_records_that_were_deleted_before_any_of_their_partition_was_read(site: Site) -> None:
    """A checkpoint that is written by hand continues after them."""
    stream = site.source().flatten().to_kafka(site.out, site.broker.conf)
    site.broker.produce(site.topic, [b"0"])
    site.start(stream)
    site.wait({"0": 0})
    stream.stop()
    site.broker.produce(site.topic, [b"lost", b"lost", b"kept"], partition=1)
    site.broker.delete_records(site.topic, 2, partition=1)
    stream.start()
    with pytest.raises(KafkaDataLossError, match=r"\[0, 2\) of .*/1 were deleted before.*by hand"):
        stream.awaitTermination()
    (site.path / site.topic / "2.txt").write_text('{"0": 0, "1": 1}')
    site.start(stream)
    site.wait({"0": 0, "1": 2})
    assert site.written() == [b"0", b"kept"]


def test_brokers_of_one_of_two_sources_are_away(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = site.broker.create_topic(f"{site.topic}-other")
    joined = site.source().union(site.source(other)).flatten()
    stream = joined.to_kafka(site.out, site.broker.conf)
    plan, failed = Position._plan, KafkaError("the brokers do not answer")

    def refuse(self: Position) -> Any:
        if other in self._source.topics:
            raise failed
        return plan(self)

    monkeypatch.setattr(Position, "_plan", refuse)
    monkeypatch.setattr(patience, "STORAGE_PATIENCE_S", 0.5)
    stream.start()
    with pytest.raises(KafkaError) as raised:
        stream.awaitTermination(WAIT_S)
    assert raised.value is failed


def test_unknown_topics_and_brokers_that_are_away(site: Site) -> None:
    stream = site.source("nowhere").flatten().to_kafka(site.out, site.broker.conf)
    with pytest.raises(KafkaError, match="topic=nowhere"):
        stream.start()
    with pytest.raises(KafkaError, match="topic=nowhere"):
        stream.start()  # the path is free again
    stream = site.source().flatten().to_kafka("no-output", site.broker.conf)
    with pytest.raises(KafkaError, match="topic=no-output"):
        stream.start()


def test_get_message_batch(site: Site) -> None:
    site.broker.produce(site.topic, [b"%d" % n for n in range(5)])
    assert get_message_batch(site.broker.conf, site.topic, 0, 1, 3) == [b"1", b"2", b"3"]
    get_message_batch(site.broker.conf, site.topic, 0, 1, 3, site.path)
    assert (site.path / "dirty_bit").exists()
    assert (site.path / f"write-ahead-logs/{site.topic}/0.txt").read_text() == "3"


# -- what is refused before anything starts


CONF = {"bootstrap.servers": "127.0.0.1:1"}


def test_automatic_commits_are_switched_off() -> None:
    with pytest.warns(UserWarning, match=r"enable\.auto\.commit was on and is now False"):
        from_kafka_batched(["t"], {**CONF, "enable.auto.commit": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = from_kafka_batched(["t"], {**CONF, "enable.auto.commit": "false"})
    assert stream._source is not None
    assert stream._source.settings["enable.auto.commit"] is False


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"topics": []}, "topics []"),
        ({"topics": ["t", "t"]}, "topics ['t', 't']"),
        ({"poll_interval": "soon"}, "poll_interval='soon'"),
        ({"poll_interval": -1}, "poll_interval=-1"),
        ({"max_batch_size": 0}, "max_batch_size=0"),
        ({"npartitions": 0}, "npartitions=0"),
        ({"consumer_conf": {**CONF, "auto.offset.reset": "error"}}, "auto.offset.reset='error'"),
        ({"npartitions": "2"}, "npartitions='2'"),
        ({"consumer_conf": {}}, "bootstrap.servers is missing"),
        ({"consumer_conf": "host:1"}, "conf='host:1' is not possible"),
        ({"consumer_conf": {**CONF, "no.such": 1}}, "no.such"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(what)):
        from_kafka_batched(**{"topics": ["t"], "consumer_conf": CONF, **options})


def test_the_program_of_the_docs_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("start", "awaitTermination"):
        monkeypatch.setattr(Stream, name, lambda self, name=name: calls.append(name))
    docs = Path(__file__).parents[2] / "docs" / "batched.md"
    exec(docs.read_text().split("```python\n")[1].split("```")[0], {})
    assert calls == ["start", "awaitTermination"]


def test_another_checkpoint_path_is_refused(tmp_path: Path) -> None:
    stream = from_kafka_batched(["t"], CONF, tmp_path / "one")
    stream.to_kafka("out", CONF, checkpoint_path=f"{tmp_path}/one/")
    with pytest.raises(ConfigError, match="the path travels with the stream"):
        stream.to_kafka("out", CONF, checkpoint_path=tmp_path / "two")
    with pytest.raises(ConfigError, match="different checkpoint paths"):
        stream.union(from_kafka_batched(["u"], CONF, tmp_path / "two"))
    stream.union(from_kafka_batched(["u"], CONF, tmp_path / "one"))


def test_one_topic_in_two_sources_is_refused(tmp_path: Path) -> None:
    one, two = (from_kafka_batched(["t"], CONF, tmp_path) for _ in range(2))
    with pytest.raises(ConfigError, match="topic t in two sources"):
        one.union(two)


def test_a_program_without_a_sink_is_refused() -> None:
    with pytest.raises(ConfigError, match="without a sink"):
        from_kafka_batched(["t"], CONF).map(len).start()


def test_a_checkpoint_needs_a_sink_and_a_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"without a checkpoint path.*checkpoint_path"):
        from_kafka_batched(["t"], CONF).sink(print).add_checkpoint()
    with pytest.raises(ConfigError, match="without a sink before it"):
        from_kafka_batched(["t"], CONF, tmp_path).map(len).add_checkpoint()
    from_kafka_batched(["t"], CONF, tmp_path).sink(print).map(len).add_checkpoint()


def test_a_path_without_checkpoints_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.batched.stream.Program", lambda *arguments: None)
    from_kafka_batched(["t"], CONF, tmp_path).sink(print).add_checkpoint().start()
    assert not caplog.text
    from_kafka_batched(["t"], CONF, tmp_path).sink(print).start()
    assert f"No sink makes checkpoints in {tmp_path}" in caplog.text


# -- as programs


PROGRAM = """
from penstock.batched import from_kafka_batched

conf = {conf!r}
producer_conf, folder = {{"bootstrap.servers": conf["bootstrap.servers"]}}, {folder!r}

stream = from_kafka_batched(["in"], conf, checkpoint_path=folder, poll_interval="0.3s")
stream.map(lambda values: [bytes(v) for v in values]).flatten().to_kafka("out", producer_conf)
stream.start(); stream.awaitTermination()
"""


def test_the_program_as_it_stands_until_ctrl_c(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    broker.create_topic("in"), broker.create_topic("out")
    broker.produce("in", [b"a", b"b"])
    folder, program = tmp_path / "folder", tmp_path / "program.py"
    conf = {**broker.conf, "auto.offset.reset": "earliest"}
    program.write_text(PROGRAM.format(conf=conf, folder=str(folder)))
    with Driver(program, [], tmp_path / "stderr.txt") as driver:
        done = folder / "in/1.txt"
        assert eventually(done.exists), driver.log()[-3000:]
        assert done.read_text() == '{"0": 1}'
        begun = len(driver.log())
        os.killpg(driver.process.pid, signal.SIGINT)  # as a terminal does
        assert driver.process.wait(WAIT_S) == 130
        (told,) = driver.log()[begun:].splitlines()
        assert "SIGINT: stopping after the batch that runs" in told
    assert read_topic(broker, "out") == [b"a", b"b"]


EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_of_a_copy(site: Site) -> None:
    build = runpy.run_path(str(EXAMPLES / "batched_copy.py"))["build"]
    site.broker.produce(site.topic, [b"a", b"b"])
    site.start(build(site.broker.address, site.topic, site.out, str(site.path)))
    site.wait({"0": 1})
    assert site.written() == [b"A", b"B"]


def test_the_example_of_a_sink_of_ones_own(site: Site, tmp_path: Path) -> None:
    build = runpy.run_path(str(EXAMPLES / "batched_own_sink.py"))["build"]
    for value in (b"1", b"2"):
        site.broker.produce(site.topic, [value], key=b"k")
    database = tmp_path / "newest.db"
    site.start(build(site.broker.address, site.topic, str(database), str(site.path)))
    site.wait({"0": 1})
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("select * from newest").fetchall() == [("k", "2")]
