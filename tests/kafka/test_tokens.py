"""Clients that are given their tokens by a function (``oauth_cb``), against a real broker."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, cloudpickle

from penstock.batched import Stream, from_kafka_batched
from penstock.errors import ConfigError, KafkaError
from penstock.kafka import ClientConf, KafkaRange
from penstock.kafka.brokers import group_offsets, partition_facts
from penstock.kafka.client_conf import resolve
from penstock.kafka.group import Group
from penstock.kafka.reader import check_settings, read_batches, read_records
from penstock.kafka.sink import Encoder, send_partition
from penstock.kafka.topics import Topics
from penstock.streaming import DStream
from tests.cli.commands import Commands
from tests.kafka import tokens
from tests.kafka.broker import Broker
from tests.kafka.clients import living_clients
from tests.kafka.program import Program
from tests.kafka.sink_driver import SinkDriver, committed
from tests.structured.driven_query import DrivenQuery
from tests.waiting import eventually

pytestmark = pytest.mark.slow
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"tokens-{next(_number)}")


def commit_group(conf: dict[str, Any], topic: str, _: Path) -> None:
    group = Group({**conf, "group.id": f"group-{topic}"}, "usual")
    group.commit({f"{topic}/0": 0})
    assert eventually(lambda: group_offsets(conf, f"group-{topic}") == {f"{topic}/0": 0})
    group.close()


def write_once(conf: dict[str, Any], topic: str, folder: Path) -> None:
    driver = SinkDriver(conf, topic, folder, 1)
    driver.run(1)
    driver.sink.close()


CLIENTS: dict[str, Callable[[dict[str, Any], str, Path], Any]] = {
    "topics": lambda conf, topic, _: Topics(conf, [topic]).scan(),
    "facts": lambda conf, topic, _: partition_facts(conf, [topic]),
    "group": commit_group,
    "records": lambda conf, topic, _: list(read_records(conf, [KafkaRange(topic, 0, 0, 1)])),
    "sender": lambda conf, topic, _: send_partition(conf, Encoder(topic)([b"b"])),
    "exactly once": write_once,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("given", ["path", "function"])
def test_each_client_is_given_tokens(
    broker: Broker, topic: str, tmp_path: Path, client: str, given: str
) -> None:
    broker.produce(topic, [b"a"])
    conf = broker.tokens_conf
    if given == "function":
        conf["oauth_cb"] = tokens.token
    CLIENTS[client](conf, topic, tmp_path / "folder")


@pytest.mark.parametrize("client", ["topics", "group", "records", "sender"])
def test_a_function_that_fails_is_told(
    broker: Broker, topic: str, tmp_path: Path, client: str
) -> None:
    broker.produce(topic, [b"a"])
    conf = {**broker.tokens_conf, "oauth_cb": "tests.kafka.tokens:refuse"}
    if client == "sender":
        conf["message.timeout.ms"] = 3000
    with pytest.raises(KafkaError, match="no credentials on this host"):
        CLIENTS[client](conf, topic, tmp_path)


def test_a_token_is_renewed_while_a_client_waits(broker: Broker, topic: str) -> None:
    conf = {**broker.tokens_conf, "oauth_cb": "tests.kafka.tokens:short"}
    broker.produce(topic, [b"a"])
    before = len(tokens.GIVEN)

    def is_renewed() -> bool:
        list(read_batches(conf, [KafkaRange(topic, 0, 0, 1)], ["value"]))
        return len(tokens.GIVEN) - before > 2

    assert eventually(is_renewed, 60)


def test_a_function_that_fails_for_a_moment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tokens, "GIVEN", [])
    given = resolve({"oauth_cb": "tests.kafka.tokens:once"})["oauth_cb"]
    assert given("") == given("")
    assert "the token before serves until it ends: away for a moment" in caplog.text
    late = time.time() + 9
    monkeypatch.setattr("penstock.kafka.client_conf.time.time", lambda: late)
    with pytest.raises(RuntimeError, match="away for a moment"):
        given("")


@pytest.mark.parametrize("client", ["records", "sender"])
def test_copies_of_a_function_that_tasks_have_share_a_client(
    broker: Broker, topic: str, tmp_path: Path, client: str
) -> None:
    """One for each task would take all files that a process may open."""
    broker.produce(topic, [b"a"])
    sent = cloudpickle.dumps({**broker.tokens_conf, "oauth_cb": lambda conf: tokens.token(conf)})
    before = living_clients()
    for _ in range(4):
        CLIENTS[client](pickle.loads(sent), topic, tmp_path)
        assert len(living_clients() - before) == 1


def test_commands_take_an_import_path(broker: Broker, topic: str) -> None:
    given = [f"--conf={name}={value}" for name, value in broker.tokens_conf.items()]
    assert topic in Commands("kafka", columns=200).succeed("topics", *given)


def test_a_query_takes_an_import_path(broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.produce(topic, [b"a"])
    conf = {f"kafka.{name}": value for name, value in broker.tokens_conf.items()}
    query = DrivenQuery(broker, topic, tmp_path / "query", {**conf, "groupIdPrefix": "tokens"})
    assert query.drain() == [[b"a"]]


@pytest.mark.spark
@pytest.mark.parametrize("given", ["path", "function"])
def test_batches_are_read_with_tokens(
    sc: SparkContext, broker: Broker, topic: str, tmp_path: Path, given: str
) -> None:
    broker.produce(topic, [b"a"])
    found: list[Any] = []
    conf = {**broker.tokens_conf, "auto.offset.reset": "earliest"}
    if given == "function":
        conf["oauth_cb"] = tokens.token
    stream: Stream = from_kafka_batched(topic, conf, poll_interval=0.1, checkpoint_path=tmp_path)
    stream.flatten().gather().sink(found.append)
    stream.start()
    try:
        assert eventually(lambda: found == [b"a"])
    finally:
        stream.stop()


@pytest.mark.spark
@pytest.mark.parametrize("given", ["path", "function"])
def test_a_program_reads_and_writes_with_tokens(
    program: Program, broker: Broker, topic: str, given: str
) -> None:
    out = broker.create_topic(f"{topic}-out")
    conf = broker.tokens_conf
    if given == "function":
        conf["oauth_cb"] = lambda config: tokens.token(config)
    broker.produce(topic, [b"a"])

    def define(stream: DStream) -> None:
        stream.to_kafka(out, conf, value=lambda r: r.value, delivery="exactly_once")
        stream.foreachRDD(program.note)

    program.start([topic], conf=conf, define=define).step()
    assert program.seen == [[b"a"]]
    assert committed(broker, out) == {"a": 1}


def test_a_function_is_in_no_graph_checkpoint() -> None:
    conf = ClientConf({"bootstrap.servers": "b:9092", "oauth_cb": tokens.token})
    assert conf.settings()["oauth_cb"] is tokens.token
    with pytest.raises(ConfigError, match=r"oauth_cb is not in the graph.*my_module:token"):
        pickle.loads(pickle.dumps(conf)).settings()
    path = ClientConf({"bootstrap.servers": "b:9092", "oauth_cb": "tests.kafka.tokens:token"})
    assert pickle.loads(pickle.dumps(path)).settings() == path.settings()


def test_tokens_that_nothing_provides_are_refused() -> None:
    conf = {"bootstrap.servers": "b:9092", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match=r"nothing provides tokens.*oauth_cb='my_module:token'"):
        ClientConf(conf)
    ClientConf({**conf, "sasl.oauthbearer.method": "oidc"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "neither a function nor the import path"),
        ("token", "neither a function nor the import path"),
        ("no.such.module:token", "no.such.module:token, which cannot be imported.*each host"),
        ("tests.kafka.tokens:nothing", "which cannot be imported"),
        ("tests.kafka.tokens:__all__", "which is no function"),
    ],
)
def test_what_is_no_function_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_settings(ClientConf({"bootstrap.servers": "b:9092", "oauth_cb": given}).settings())
