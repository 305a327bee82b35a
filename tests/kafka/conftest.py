from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.broker import LIBRARIES, Broker


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
