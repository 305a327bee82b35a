from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.kafka.broker import Broker

from .site import Site


@pytest.fixture
def site(sc: SparkContext, broker: Broker, tmp_path: Path) -> Iterator[Site]:
    site = Site(broker, tmp_path)
    yield site
    site.stop()
