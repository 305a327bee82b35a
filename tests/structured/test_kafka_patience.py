"""Brokers that do not answer for a while, without brokers: what a query does meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.errors import KafkaError
from penstock.kafka.topics import TopicFacts
from penstock.model import Offsets
from penstock.structured.kafka import planner as module
from penstock.structured.kafka.options import KafkaOptions
from penstock.structured.kafka.planner import KafkaPlanner

ENDS: Mapping[str, int] = {"clicks/0": 1000}


class FlakyTopics:
    """The partitions; each of the next ``failing`` calls finds no broker."""

    failing = 0
    ids: Mapping[str, str] = {}

    def __init__(self, *_: object) -> None:
        pass

    def scan(self) -> TopicFacts:
        return TopicFacts(begins={"clicks/0": 0}, ends=ENDS, ids={"clicks": None})

    def latest(self, start: Offsets, ids: Mapping[str, str]) -> Offsets:
        if FlakyTopics.failing:
            FlakyTopics.failing -= 1
            raise KafkaError("the brokers do not answer")
        return ENDS

    def starts(self, start: Offsets, end: Offsets) -> Offsets:
        return start


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> KafkaPlanner:
    monkeypatch.setattr(module, "Planner", FlakyTopics)
    monkeypatch.setattr(module, "_AGAIN_S", 0)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "clicks"}
    return KafkaPlanner(KafkaOptions.parse(given))


def test_a_query_that_runs_on_plans_nothing_meanwhile(planner: KafkaPlanner) -> None:
    FlakyTopics.failing = 1
    planner.has_begun = True
    assert planner.latest({"clicks/0": 300}) == {"clicks/0": 300}
    assert planner.latest({"clicks/0": 300}) == ENDS


def test_a_query_that_ends_with_what_there_is_waits_for_them(planner: KafkaPlanner) -> None:
    planner.has_begun = True
    planner.snapshot()
    FlakyTopics.failing = 3
    assert planner.latest({"clicks/0": 300}) == ENDS


def test_a_query_of_one_batch_waits_for_them(planner: KafkaPlanner) -> None:
    planner.takes_all = planner.has_begun = True
    FlakyTopics.failing = 3
    assert planner.latest({"clicks/0": 300}) == ENDS
