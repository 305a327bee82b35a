"""``penstock kafka``: what is shown of each kind of reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools import plan_rewind
from penstock.errors import (
    ConfigError,
)
from penstock.kafka import brokers, planner
from penstock.kafka.topics import Topics
from penstock.storage import attach_storage
from tests.cli.commands import Commands
from tests.kafka.broker import Broker
from tests.waiting import eventually

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
    assert rows("topics", "lags", *to) == [["lags", 0, 2, 5, 5, 3], ["lags", 1, 0, 0, 0, 0]]

    first = {"(first batch)": {}, "lags": {"0": 1, "1": 0}}  # of penstock-kafka
    query = spark_query(tmp_path / "query", first)
    assert rows("offsets", str(query)) == [
        ["0", "lags", 0, 1, "batch 0"],
        ["0", "lags", 1, 0, "batch 0"],
    ]
    assert rows("lag", str(query), *to) == [
        ["0", "lags", 0, 1, 2, 5, 5, 3, "1 records are gone"],
        ["0", "lags", 1, 0, 0, 0, 0, 0, ""],
    ]
    own = own_program(tmp_path / "own", {"lags": {"0": 4}, f"lags@{'x' * 22}": {}})
    assert rows("lag", str(own), *to) == [["clicks", "lags", 0, 4, 2, 5, 5, 1, ""]]

    group = Consumer({**broker.conf, "group.id": "lags"})
    places = [TopicPartition("lags", 0, 4), TopicPartition("lags", 1, 0)]
    group.commit(offsets=places, asynchronous=False)
    group.close()
    file = tmp_path / "conf"
    file.write_text(f"# the brokers\nbootstrap.servers={broker.address}\n")
    expected = [["lags", "lags", 0, 4, 2, 5, 5, 1, ""], ["lags", "lags", 1, 0, 0, 0, 0, 0, ""]]
    assert rows("lag", "--group", "lags", "--conf", str(file)) == expected
    assert "lag in all: 3" in KAFKA.succeed("lag", str(query), *to)
    inspected = CHECKPOINT.succeed("inspect", str(query), *to)
    assert "behind: 3 records of source 0, which" in inspected


def test_records_behind_an_open_transaction_are_told(
    broker: Broker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which readers of committed records get nothing of, whatever its producer waits for."""
    broker.create_topic("hangs")
    broker.produce("hangs", [b"%d" % n for n in range(10)])
    hangs = Producer({**broker.conf, "transactional.id": "elsewhere", "log_level": 0})
    hangs.init_transactions()
    hangs.begin_transaction()
    hangs.produce("hangs", b"in the transaction")
    hangs.flush()
    broker.produce("hangs", [b"late"] * 20)
    to, own = ("--brokers", broker.address), own_program(tmp_path / "own", {"hangs": {"0": 10}})
    assert rows("topics", "hangs", *to) == [["hangs", 0, 0, 10, 31, 31]]
    note = "21 behind a transaction that is open at 10"
    assert rows("lag", str(own), *to) == [["clicks", "hangs", 0, 10, 0, 10, 31, 21, note]]
    assert "behind: 21 records" in CHECKPOINT.succeed("inspect", str(own), *to)
    monkeypatch.setattr(planner, "_WRITTEN_S", 0.0)
    monkeypatch.setattr(planner, "_HANGING_S", 0.0)
    plans = planner.Planner(
        Topics(broker.conf, ["hangs"]), attach_storage(str(own)), "clicks", "fail"
    )
    for _ in range(3):
        assert plans.latest({"hangs/0": 10}, {}) == {"hangs/0": 10}
    assert plans.unreadable == {"hangs/0": 21}
    assert caplog.text.count("hangs/0: 21 records wait behind a transaction") == 1
    hangs.abort_transaction()
    assert eventually(lambda: plans.latest({"hangs/0": 10}, {}) == {"hangs/0": 32})
    assert plans.unreadable == {}


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
    assert rows("lag", str(place), *to)[0] == ["batches", "batches-a", 0, 4, 2, 5, 5, 1, ""]

    error = CHECKPOINT.fail("rewind", str(place), "--to-batch", "0", "--apply")
    assert "a checkpoint_path of penstock.batched, which no command changes" in str(error)


def test_the_lag_of_a_group_that_has_committed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "group_offsets", lambda *_: {})
    error = KAFKA.fail("lag", "--group", "dash", "--brokers", "127.0.0.1:1")
    assert "no group 'dash' that has committed" in str(error)
    assert "<prefix>-<id>" in str(error)


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
        assert "kept/0 cannot continue from 2: 1 records are gone" in str(error)
        checkpoint.succeed("rewind", str(place), "--to-batch", "1", *to)
    assert "1 records are gone" in str(checkpoint.fail("promote", str(places[0]), "0", *to))


def test_records_that_a_rewind_has_read_again_are_those_of_each_batch(tmp_path: Path) -> None:
    """Also where a batch in between began further back."""
    ends = [{"kept": {"0": end}} for end in (1000, 1500, 200, 300)]
    plan = plan_rewind(own_program(tmp_path / "program", *ends), to_batch=0)
    assert "source 0: 600 records again; that the topics still" in plan.meaning[1]


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


@pytest.mark.parametrize("offset", [{f"a@{'x' * 22}b": {"0": 5}}, {"a": {"9" * 5000: 5}}])
def test_offsets_of_no_topics(tmp_path: Path, offset: dict[str, Any]) -> None:
    error = KAFKA.fail("offsets", str(spark_query(tmp_path / "query", offset)))
    assert "there are no Kafka offsets" in str(error)
