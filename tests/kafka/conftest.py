from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.kafka.broker import Broker
from tests.kafka.program import Program


@pytest.fixture
def program(sc: SparkContext, broker: Broker, tmp_path: Path) -> Iterator[Program]:
    program = Program(sc, broker, tmp_path / "checkpoint")
    yield program
    program.stop()
