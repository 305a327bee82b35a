from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.kafka import topics
from tests.kafka.broker import Broker
from tests.kafka.program import Program
from tests.waiting import WAIT_S


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have drivers in this process wait for the broker, which may stall for seconds."""
    monkeypatch.setattr(topics, "_TIMEOUT_S", WAIT_S)


@pytest.fixture
def program(sc: SparkContext, broker: Broker, tmp_path: Path, patient: None) -> Iterator[Program]:
    """A program whose batches have all that there is, however late the broker says so."""
    program = Program(sc, broker, tmp_path / "checkpoint")
    yield program
    program.stop()
