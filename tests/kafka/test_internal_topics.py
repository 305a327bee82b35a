"""The brokers' own topics: a pattern matches none of them, whoever reads; by name they are read."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.kafka.brokers import group_offsets, partition_facts
from penstock.kafka.group import Group
from penstock.kafka.offsets import from_json
from penstock.kafka.topics import Topics
from tests.kafka.broker import Broker
from tests.kafka.program import Program
from tests.structured.driven_query import DrivenQuery
from tests.waiting import eventually

pytestmark = pytest.mark.slow
_INTERNAL = ("__consumer_offsets", "__transaction_state")
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic, of brokers that have topics of their own."""
    name = broker.create_topic(f"public-{next(_number)}")
    broker.produce(name, [b"a"])
    group = Group(broker.conf, "internal")
    group.commit({f"{name}/0": 1})
    assert eventually(lambda: group_offsets(broker.conf, "internal"))
    group.close()
    producer = Producer({**broker.conf, "transactional.id": name, "log_level": 0})
    producer.init_transactions()
    assert eventually(lambda: all(map(broker.has_topic, _INTERNAL)))
    return name


def test_a_pattern_matches_none_of_them(broker: Broker, topic: str, tmp_path: Path) -> None:
    text = f"__.*|{topic}"
    assert list(Topics(broker.conf, re.compile(text)).scan().ids) == [topic]
    assert list(Topics(broker.conf, ["__consumer_offsets"]).scan().ids) == ["__consumer_offsets"]
    assert not {part for part in partition_facts(broker.conf) if part.startswith("__c")}
    query = DrivenQuery(broker, topic, tmp_path / "query", {"subscribePattern": text})
    assert query.drain() == [[b"a"]]
    assert from_json(query.offsets(query.newest())).keys() == {f"{topic}/0"}
    assert query.read({"subscribePattern": text}) == [b"a"]


@pytest.mark.spark
def test_an_idle_program_over_a_pattern_has_empty_batches(program: Program, topic: str) -> None:
    """It reads none of the offsets that it commits to its group."""
    stepper = program.start(re.compile(f"__.*|{topic}"))
    stepper.step(3)
    assert program.seen == [[b"a"], [], []]
