from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.kafka.broker import LIBRARIES, Broker
from tests.kafka.program import Program


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of a worker share; each makes topics of its own."""
    if LIBRARIES is None:
        pytest.skip("NOT PROVED: there are no libraries of a Kafka broker (scripts/kafka.sh)")
    broker = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@pytest.fixture
def program(sc: SparkContext, broker: Broker, tmp_path: Path) -> Iterator[Program]:
    program = Program(sc, broker, tmp_path / "checkpoint")
    yield program
    program.stop()
