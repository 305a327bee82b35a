"""``penstock checkpoint adopt``: a new location begins where another engine's reader is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark import SparkContext

from penstock.batched.layout import Planned, dump_planned, dump_rewind
from penstock.batched.rewind import plan_rewind
from penstock.checkpoint import CheckpointLocation
from penstock.checkpoint.tools import validate
from penstock.checkpoint.tools.changes import fill
from penstock.errors import ConfigError, KafkaDataLossError, PenstockError, StorageError
from penstock.kafka import KafkaRange
from penstock.kafka.adopt import apply_adopt, plan_adopt
from penstock.kafka.generations import Generations
from penstock.kafka.identified import IdentifiedOffsets
from penstock.storage import Storage, open_storage
from penstock.streaming import StreamingContext
from penstock.testing import FaultyStorage, ManualClock
from penstock.testing.stepper import Stepper
from tests.checkpoint.tools.queries import write_stateless
from tests.checkpoint.tools.test_changes import files_of
from tests.cli.commands import Commands
from tests.kafka.broker import Broker
from tests.kafka.test_commands import own_program, spark_query

CHECKPOINT = Commands("checkpoint", columns=200)


def first_offset(place: Path, name: str) -> object:
    found = CheckpointLocation(place).first_offsets.get(name)
    return None if found is None else found.offset


@pytest.mark.spark
def test_a_program_goes_on_where_a_query_of_spark_was(
    sc: SparkContext, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("adopted", 2)
    broker.produce("adopted", [b"0", b"1", b"2"])
    broker.produce("adopted", [b"3"], partition=1)
    query = spark_query(tmp_path / "query", {"adopted": {"0": 1, "1": 0}}, {"adopted": {"0": 3}})
    (query / "commits" / "1").unlink()  # planned, and cut off
    before = files_of(query)
    target = tmp_path / "new"
    command = ("adopt", str(target), "--from", str(query), "--name", "in")
    plan = CHECKPOINT.succeed(*command, "--brokers", broker.address)
    assert "adopted/0 from 1" in plan
    assert "nothing is changed yet" in plan
    assert not target.exists()
    done = CHECKPOINT.succeed(*command, "--apply")
    assert files_of(query) == before
    assert json.loads((target / "metadata").read_text())["id"] in done
    assert [each.severity for each in validate(target).findings] == []

    seen: list[list[bytes]] = []
    clock = ManualClock(1_000_000)
    ssc = StreamingContext(sc, 1, clock=clock)
    ssc.checkpoint(str(target))
    stream = ssc.kafkaStream(["adopted"], broker.conf, "latest", name="in")
    stream.foreachRDD(lambda rdd: seen.append(sorted(each.value for each in rdd.collect())))
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step()
    ssc.stop(stopSparkContext=False)
    assert seen == [[b"1", b"2", b"3"]]


def test_a_query_of_spark_goes_on_where_a_group_was(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("grouped", 2)
    broker.produce("grouped", [b"0", b"1", b"2"])
    consumer = Consumer({**broker.conf, "group.id": "grouped"})
    consumer.commit(offsets=[TopicPartition("grouped", 0, 2)], asynchronous=False)
    consumer.close()
    target = tmp_path / "new"
    group = ("--group", "grouped", "--brokers", broker.address)
    CHECKPOINT.succeed("adopt", str(target), *group, "--as", "spark", "--apply")
    assert (target / "sources" / "0" / "0").read_bytes() == b'\0v1\n{"grouped":{"0":2}}'
    broker.delete_records("grouped", 3)
    error = CHECKPOINT.fail("adopt", str(tmp_path / "other"), *group, "--name", "in")
    assert isinstance(error, KafkaDataLossError)
    assert "grouped/0 cannot go on from 2: 1 records are gone, the topic has [3, 3)" in str(error)


def test_checkpoints_of_streamz_and_of_penstock_are_taken_over(tmp_path: Path) -> None:
    streamz = tmp_path / "streamz"
    for path, text in {
        "clicks/8.txt": "{0: 3, 1: 4}",
        "clicks/10.txt": "{0: 5, 1: 4}",
        "views/1.txt": '{"0": 0}',
        "write-ahead-logs/clicks/0.txt": "9",
        "dirty_bit": "",
    }.items():
        (streamz / path).parent.mkdir(parents=True, exist_ok=True)
        (streamz / path).write_text(text)
    CHECKPOINT.succeed(
        "adopt", str(tmp_path / "1"), "--from", str(streamz), "--name", "a", "--apply"
    )
    assert first_offset(tmp_path / "1", "a") == {"clicks": {"0": 6, "1": 5}, "views": {"0": 1}}

    ranges = (KafkaRange("clicks", 0, 99, 100),)
    waits = Planned("7a1ad4b5-6d0f-4a0e-a1c5-1f0ac1d5c6b0", 3, ranges, ("out",))
    (streamz / "planned").write_bytes(dump_planned(waits))
    error = CHECKPOINT.fail("adopt", str(tmp_path / "new"), "--from", str(streamz), "--name", "in")
    assert "a batch with records of clicks waits for its exactly-once sinks" in str(error)
    (streamz / "planned").unlink()
    begun = dump_rewind(plan_rewind(streamz, offsets={"clicks": {0: 1}}))
    (streamz / "rewind").write_bytes(begun)  # and cut off there
    error = CHECKPOINT.fail("adopt", str(tmp_path / "3"), "--from", str(streamz), "--name", "a")
    assert "a rewind of it was begun and is not complete" in str(error)

    own = own_program(tmp_path / "own", {"clicks": {"0": 7}})
    command = ("adopt", str(tmp_path / "2"), "--from", str(own), "--name", "b", "--apply", "--json")
    plan = json.loads(CHECKPOINT.succeed(*command))
    assert (plan["applied"], plan["plan"]["offset"]) == (True, {"clicks": {"0": 7}})
    assert first_offset(tmp_path / "2", "b") == {"clicks": {"0": 7}}
    assert "is not empty" in str(CHECKPOINT.fail(*command[:1], str(own), *command[2:]))


def test_a_topic_named_as_a_log_of_queries(tmp_path: Path) -> None:
    (tmp_path / "path/offsets").mkdir(parents=True)
    (tmp_path / "path/offsets/1.txt").write_text('{"0": 5}')
    origin = ("--from", str(tmp_path / "path"))
    CHECKPOINT.succeed("adopt", str(tmp_path / "new"), *origin, "--name", "a", "--apply")
    assert first_offset(tmp_path / "new", "a") == {"offsets": {"0": 6}}


def test_a_query_over_files_has_no_offsets_of_topics(tmp_path: Path) -> None:
    query = write_stateless(tmp_path / "query", batches=2)
    args = ("adopt", str(tmp_path / "new"), "--from", str(query), "--name", "in")
    assert "no source reads Kafka topics" in str(CHECKPOINT.fail(*args))


def test_a_graph_checkpoint_of_pyspark_is_refused_with_the_way_out(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "checkpoint-1700000000000").write_bytes(b"\xac\xed\x00\x05")
    error = CHECKPOINT.fail("adopt", str(tmp_path / "new"), "--from", str(old), "--name", "in")
    assert isinstance(error, ConfigError)
    assert "are in Java objects of the program's own classes" in str(error)
    assert "--group takes them" in str(error)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_it_is_cut_off_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """No program starts on what is half filled; the same command completes it."""
    cut = 0
    for nth in range(1, 9):
        target = tmp_path / str(nth)
        ends = IdentifiedOffsets({"clicks/0": 5}, {"clicks": "its id"})
        plan = plan_adopt("group g of h:1", ends, target, name="in")

        def open_faulty(place: str, nth: int = nth) -> Storage:
            storage = FaultyStorage(open_storage(place))
            storage.fail("create" if nth < 7 else "delete", nth=max(1, nth % 7), after=after)
            return storage

        with monkeypatch.context() as patch:
            patch.setattr(fill, "open_storage", open_faulty)
            try:
                apply_adopt(plan)
            except StorageError:
                cut += 1
        if any((target / "offsets").glob("[0-9]*")):
            with pytest.raises(PenstockError):
                CheckpointLocation(target).acquire()
            apply_adopt(plan)
        elif not (target / "metadata").exists():
            apply_adopt(plan)
        assert first_offset(target, "in") == {"clicks": {"0": 5}}
        assert Generations(open_storage(target), "in").id_of("clicks", 0) == "its id"
        with CheckpointLocation(target) as driver:
            assert driver.recover().next_batch_id == 0
    assert cut >= 7
