"""``penstock kafka``: what is shown of each kind of reader, and how each is moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka import Consumer, TopicPartition
from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools import apply_plan, plan_rewind, plan_undo
from penstock.cli.kafka import _at
from penstock.errors import (
    CheckpointError,
    ConfigError,
    KafkaDataLossError,
)
from penstock.kafka import brokers
from penstock.kafka.generations import Generations
from penstock.kafka.losses import LossLog, LostRange
from penstock.kafka.reset import Move, PartitionFacts, Target, plan_moves, select
from penstock.storage import attach_storage
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.cli.commands import Commands
from tests.kafka.broker import Broker

KAFKA = Commands("kafka", columns=200)
CHECKPOINT = Commands("checkpoint", columns=200)
_SPARK_CONF = {"spark.sql.shuffle.partitions": "2"}


def spark_query(place: Path, *offsets: dict[str, Any]) -> Path:
    """Write what a query of Spark over its own Kafka source leaves, a batch for each offset."""
    for name, content in {"metadata": '{"id":"4b5f4b5a-6b6f-4d3c-9c5e-000000000001"}'}.items():
        place.mkdir()
        (place / name).write_text(content)
    for log in ("offsets", "commits"):
        (place / log).mkdir()
    for batch_id, offset in enumerate(offsets):
        metadata = {
            "batchWatermarkMs": 0,
            "batchTimestampMs": 1_600_000_000_000 + batch_id,
            "conf": _SPARK_CONF,
        }
        text = "\n".join(["v1", json.dumps(metadata), json.dumps(offset, separators=(",", ":"))])
        (place / "offsets" / str(batch_id)).write_text(text)
        (place / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return place


def own_program(place: Path, *offsets: dict[str, Any]) -> Path:
    """Write what a penstock program with one Kafka input leaves."""
    own = {"spark.penstock.inputs": '["clicks"]', "spark.penstock.batchIntervalMs": "1000"}
    with CheckpointLocation(place) as driver:
        for batch_id, offset in enumerate(offsets):
            line = json.dumps(offset, separators=(",", ":"))
            entry = OffsetSeq(1_600_000_000_000 + 1000 * batch_id, conf=own, sources=(line,))
            driver.plan(batch_id, entry)
            driver.commit(batch_id)
    return place


def newest(place: Path) -> Any:
    batch_id = max(int(path.name) for path in (place / "offsets").glob("[0-9]*"))
    assert (place / "commits" / str(batch_id)).exists()
    return json.loads((place / "offsets" / str(batch_id)).read_text().splitlines()[2])


def rows(*arguments: str) -> list[list[Any]]:
    return [[*row.values()] for row in json.loads(KAFKA.succeed(*arguments, "--json"))]


def test_topics_and_the_lag_of_each_kind_of_reader(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("lags", 2)
    broker.produce("lags", [b"%d" % n for n in range(5)])
    broker.delete_records("lags", 2)
    to = ("--brokers", broker.address)
    assert rows("topics", "lags", *to) == [["lags", 0, 2, 5, 3], ["lags", 1, 0, 0, 0]]

    first = {"(first batch)": {}, "lags": {"0": 1, "1": 0}}  # of penstock-kafka
    query = spark_query(tmp_path / "query", first)
    assert rows("offsets", str(query)) == [
        ["0", "lags", 0, 1, "batch 0"],
        ["0", "lags", 1, 0, "batch 0"],
    ]
    assert rows("lag", str(query), *to) == [
        ["0", "lags", 0, 1, 2, 5, 3, "1 records are gone"],
        ["0", "lags", 1, 0, 0, 0, 0, ""],
    ]
    own = own_program(tmp_path / "own", {"lags": {"0": 9}, "lags@1": {"0": 4}})
    assert rows("lag", str(own), *to) == [["clicks", "lags", 0, 4, 2, 5, 1, ""]]

    group = Consumer({**broker.conf, "group.id": "lags"})
    places = [TopicPartition("lags", 0, 4), TopicPartition("lags", 1, 0)]
    group.commit(offsets=places, asynchronous=False)
    group.close()
    file = tmp_path / "conf"
    file.write_text(f"# the brokers\nbootstrap.servers={broker.address}\n")
    expected = [["lags", "lags", 0, 4, 2, 5, 1, ""], ["lags", "lags", 1, 0, 0, 0, 0, ""]]
    assert rows("lag", "--group", "lags", "--conf", str(file)) == expected
    assert "lag in all: 3" in KAFKA.succeed("lag", str(query), *to)
    inspected = CHECKPOINT.succeed("inspect", str(query), *to)
    assert "behind: 3 records of source 0, which" in inspected


def checkpoint_path(place: Path, **topics: dict[int, int]) -> Path:
    """Write what a program of penstock.batched leaves, with the last offsets that are done."""
    for topic, lasts in topics.items():
        (place / topic).mkdir(parents=True)
        (place / topic / "7.txt").write_text(json.dumps(lasts))
    return place


def test_batches_are_shown_and_not_moved(broker: Broker, tmp_path: Path) -> None:
    for topic in ("batches-a", "batches-b"):
        broker.create_topic(topic, 2)
        broker.produce(topic, [b"%d" % n for n in range(5)])
    broker.delete_records("batches-a", 2)
    lasts = {"batches-a": {0: 3, 1: -1}, "batches-b": {0: 4}}
    place, to = checkpoint_path(tmp_path / "path", **lasts), ("--brokers", broker.address)
    at = "batches-a/7.txt, batches-b/7.txt"
    assert rows("offsets", str(place)) == [
        ["batches", "batches-a", 0, 4, at],
        ["batches", "batches-a", 1, 0, at],
        ["batches", "batches-b", 0, 5, at],
    ]
    assert rows("lag", str(place), *to)[0] == ["batches", "batches-a", 0, 4, 2, 5, 1, ""]

    error = KAFKA.fail("reset", str(place), *to, "--to-latest", "--apply")
    assert "a checkpoint_path of penstock.batched, which no command changes" in str(error)


def test_the_lag_of_a_group_that_has_committed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "group_offsets", lambda *_: {})
    error = KAFKA.fail("lag", "--group", "dash", "--brokers", "127.0.0.1:1")
    assert "no group 'dash' that has committed" in str(error)
    assert "<prefix>-<id>" in str(error)


def test_a_query_of_spark_is_moved_and_back(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("moved", 2)
    broker.produce("moved", [b"%d" % n for n in range(9)])
    broker.delete_records("moved", 2)
    place = spark_query(
        tmp_path / "query", {"moved": {"0": 5, "1": 0}}, {"moved": {"0": 6, "1": 0}}
    )
    command = ("reset", str(place), "--brokers", broker.address)

    plan = KAFKA.succeed(*command, "--shift-by", "-3", "--topic", "moved:0")
    assert "moved/0: from 3: 3 offsets again" in plan
    assert "not checked" not in plan
    assert "nothing is changed yet" in plan
    assert newest(place) == {"moved": {"0": 6, "1": 0}}
    done = KAFKA.succeed(*command, "--to-earliest", "--apply")
    assert newest(place) == {"moved": {"0": 2, "1": 0}}
    undo = done.rpartition("undo ")[2].split()[0]
    apply_plan(plan_undo(undo))
    assert newest(place) == {"moved": {"0": 6, "1": 0}}
    KAFKA.succeed(*command, "--to-latest", "--apply")
    assert newest(place) == {"moved": {"0": 9, "1": 0}}
    file = tmp_path / "offsets.json"
    file.write_text('{"moved":{"0":4}}')
    KAFKA.succeed(*command, "--from-file", str(file), "--apply")
    assert newest(place) == {"moved": {"0": 4, "1": 0}}
    KAFKA.succeed(*command, "--to-datetime", "1970-01-01T00:00:00Z", "--apply")
    assert newest(place) == {"moved": {"0": 2, "1": 0}}

    error = KAFKA.fail(*command, "--to-offset", "1", "--topic", "moved:0")
    assert isinstance(error, KafkaDataLossError)
    assert "moved/0 cannot go on from 1: 1 records are gone, the topic has [2, 9)" in str(error)
    assert "exactly one point" in str(KAFKA.fail(*command))
    assert "no:7 is not among" in str(KAFKA.fail(*command, "--to-latest", "--topic", "no:7"))


def test_what_a_query_passed_over_is_read_after_a_reset(broker: Broker, tmp_path: Path) -> None:
    """With its loss log in the checkpoint location, of penstock-kafka."""
    broker.create_topic("passed")
    broker.produce("passed", [b"%d" % n for n in range(10)])
    place = spark_query(tmp_path / "query", {"passed": {"0": 2}}, {"passed": {"0": 10}})
    storage, name = attach_storage(str(place)), "0"
    LossLog(storage, name).add([LostRange("passed/0", 2, 10, "records [0, 3) were deleted")])

    def lost() -> list[tuple[int, int]]:
        return [(r.start_offset, r.end_offset) for r in LossLog(storage, name).read()["passed-0"]]

    command = ("reset", str(place), "--brokers", broker.address, "--apply")
    done = KAFKA.succeed(*command, "--to-offset", "5")
    assert "the loss log holds nothing more of what is read from there on" in done
    assert lost() == [(2, 5)]
    apply_plan(plan_undo(done.rpartition("undo ")[2].split()[0]))
    assert lost() == [(2, 10)]
    Generations(storage, name).observe({"passed": "the id of an earlier topic"})
    error = KAFKA.fail(*command, "--to-offset", "5")
    assert "topic passed was deleted and created anew" in str(error)


def test_a_program_that_runs_is_not_moved(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("runs")
    broker.produce("runs", [b"1", b"2"])
    place = own_program(tmp_path / "own", {"runs": {"0": 2}})
    command = ("reset", str(place), "--brokers", broker.address, "--to-earliest", "--apply")
    with CheckpointLocation(place) as driver:
        assert "another driver uses" in str(KAFKA.fail(*command))
        driver.plan(1, OffsetSeq(1_600_000_001_000, sources=('{"runs":{"0":2}}',)))
    error = KAFKA.fail(*command)
    assert isinstance(error, CheckpointError)
    assert "batch 1 is planned and not done" in str(error)


def test_a_rewind_asks_whether_topics_have_the_records(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("kept")
    broker.produce("kept", [b"%d" % n for n in range(8)])
    offsets = [{"kept": {"0": end}} for end in (2, 5, 8)]
    places = (
        spark_query(tmp_path / "query", *offsets),
        own_program(tmp_path / "program", *offsets),
    )
    to, checkpoint = ("--brokers", broker.address), Commands("checkpoint", columns=200)
    for place in places:
        plan = checkpoint.succeed("rewind", str(place), "--to-batch", "0")
        assert "that the topics still have this is not checked (--brokers)" in plan
        plan = checkpoint.succeed("rewind", str(place), "--to-batch", "0", *to)
        assert "the topics have this" in plan
    broker.delete_records("kept", 3)
    for place in places:
        error = checkpoint.fail("rewind", str(place), "--to-batch", "0", *to)
        assert "kept/0 cannot go on from 2: 1 records are gone" in str(error)
        checkpoint.succeed("rewind", str(place), "--to-batch", "1", *to)
    assert "1 records are gone" in str(checkpoint.fail("promote", str(places[0]), "0", *to))


def test_records_that_a_rewind_has_read_again_are_those_of_each_batch(tmp_path: Path) -> None:
    """Also where a reset let a batch in between begin further back."""
    ends = [{"kept": {"0": end}} for end in (1000, 1500, 200, 300)]
    plan = plan_rewind(own_program(tmp_path / "program", *ends), to_batch=0)
    assert "source 0: 600 records again; that the topics still" in plan.meaning[1]


def test_topics_that_were_created_anew_do_not_have_the_records(tmp_path: Path) -> None:
    ends = [{"kept": {"0": 1000}}, {"kept@1": {"0": 10}}]
    place = own_program(tmp_path / "program", *ends)
    with pytest.raises(CheckpointError, match="deleted or created anew since"):
        plan_rewind(place, to_batch=0, are_held=lambda begins: None)


@pytest.mark.spark
def test_a_program_goes_on_from_where_it_was_moved(
    sc: SparkContext, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("program")
    broker.produce("program", [b"%d" % n for n in range(4)])
    clock, seen, place = ManualClock(1_000_000), [], tmp_path / "checkpoint"

    def run(batches: int) -> None:
        ssc = StreamingContext(sc, 1, clock=clock)
        ssc.checkpoint(str(place))
        stream = ssc.kafkaStream(["program"], broker.conf, "earliest", name="in")
        stream.foreachRDD(lambda rdd: seen.append([record.value for record in rdd.collect()]))
        stepper = Stepper(ssc, clock)
        ssc.start()
        stepper.step(batches)
        ssc.stop(stopSparkContext=False)

    run(1)
    command = ("reset", str(place), "--brokers", broker.address, "--source", "in", "--apply")
    KAFKA.succeed(*command, "--to-offset", "1")
    run(2)
    broker.produce("program", [b"4", b"5"])
    KAFKA.succeed(*command, "--to-latest")
    broker.produce("program", [b"6"])
    run(1)
    assert seen == [[b"0", b"1", b"2", b"3"], [b"1", b"2", b"3"], [], [b"6"]]


FACTS = {"a/0": PartitionFacts(5, 10), "a/1": PartitionFacts(0, 3)}


@pytest.mark.parametrize(
    ("target", "moves"),
    [
        (Target(to_earliest=True), {"a/0": 5, "a/1": 0}),
        (Target(to_latest=True), {"a/0": 10, "a/1": 3}),
        (Target(shift_by=-1), {"a/0": 6, "a/1": 1}),
        (Target(at_time={"a/0": 8, "a/1": 2}), {"a/0": 8}),
        (Target(from_file={"a/1": 0}), {"a/1": 0}),
    ],
)
def test_moves(target: Target, moves: dict[str, int]) -> None:
    ends = {"a/0": 7, "a/1": 2}
    found = plan_moves(ends, FACTS, target)
    assert found == [Move(part, ends[part], end) for part, end in moves.items()]
    assert plan_moves({"a/0": 7}, FACTS, Target(to_offset=6)) == [Move("a/0", 7, 6)]


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (Target(to_offset=4), KafkaDataLossError, r"1 records are gone, the topic has \[5, 10\)"),
        (Target(shift_by=4), KafkaDataLossError, r"a/0 cannot go on from 11: the topic has"),
        (Target(from_file={"b/0": 1}), ConfigError, "the file names b/0"),
    ],
)
def test_moves_that_are_refused(target: Target, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        plan_moves({"a/0": 7}, FACTS, target)


def test_a_partition_that_is_gone_can_be_left_out() -> None:
    with pytest.raises(ConfigError, match="a/2 is not in Kafka any more"):
        plan_moves({"a/2": 7}, FACTS, Target(to_latest=True))
    assert select(["a/0", "a/1", "b/0"], ["a:1", "b"]) == ["a/1", "b/0"]


def test_secrets_are_not_for_the_command_line() -> None:
    command = ("topics", "--brokers", "h:1", "--conf", "sasl.password=geheim")
    error = KAFKA.fail(*command)
    assert "sasl.password is a secret" in str(error)
    assert "geheim" not in str(error)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("security.protocol=bogus", 'Invalid value "bogus"'),
        ("ssl.keystore.location=/missing", "`ssl.keystore.password` is mandatory"),
    ],
)
def test_settings_that_the_client_refuses(setting: str, message: str) -> None:
    wanted = ("--brokers", "127.0.0.1:1", "--conf", "security.protocol=ssl", "--conf", setting)
    for command in ("topics", "lag"):
        more = ("--group", "g") if command == "lag" else ()
        error = KAFKA.fail(command, *more, *wanted)
        assert isinstance(error, ConfigError)
        assert message in str(error)


@pytest.mark.parametrize("offset", [{"a@x": {"0": 5}}, {"a": {"9" * 5000: 5}}])
def test_offsets_of_no_topics(tmp_path: Path, offset: dict[str, Any]) -> None:
    error = KAFKA.fail("offsets", str(spark_query(tmp_path / "query", offset)))
    assert "there are no Kafka offsets" in str(error)


def test_a_time_that_no_record_has(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="years 1 to 9999"):
        _at({}, ["a/0"], "9" * 22)
