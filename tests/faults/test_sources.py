"""The promise for every built-in source: whatever is killed, stopped or cut, nothing acked is lost.

A client outside Spark sends numbered records to two receivers of one stream, one in Spark and one
in `penstock ingest`, while a storm of faults goes over all of it; then its ledger is compared with
what the program wrote. `make soak` has storms of more than 50 faults.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.sources.http import HttpSource
from tests.faults.sources.mqtt import MqttSource
from tests.faults.sources.socket import SocketSource
from tests.faults.sources.source import Source
from tests.faults.sources.tail import TailSource
from tests.faults.storm import Site, Storm
from tests.receivers.mqtt_broker import needs_mosquitto
from tests.waiting import eventually

pytestmark = pytest.mark.spark

SOURCES: dict[str, Callable[[Path], Source]] = {
    "tail": TailSource,
    "socket": lambda root: SocketSource(),
    "http": lambda root: HttpSource(),
    "mqtt": MqttSource,
}


NAMES = [pytest.param(name, marks=needs_mosquitto if name == "mqtt" else ()) for name in SOURCES]


@pytest.mark.parametrize("name", NAMES)
def test_ten_faults(name: str, tmp_path: Path) -> None:
    weather(tmp_path, SOURCES[name](tmp_path), faults=10)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_sixty_faults(name: str, tmp_path: Path) -> None:
    weather(tmp_path, SOURCES[name](tmp_path), faults=60)


def weather(root: Path, source: Source, faults: int) -> None:
    """Let a storm go over a site, and check that the ledger balances."""
    seed = int(os.environ.get("STORM_SEED", random.randrange(10**6)))
    site = Site(root, source)
    storm = Storm(site, seed)
    with source.running(), site.running():
        with source.sending():
            site.spark.wait_line("committed")
            storm.rage(faults)
            assert eventually(site.recovered, 120.0), f"seed {seed}: {site.state()}"
        balance = site.settle()
    print(f"seed {seed}: {dict(storm.struck)}: {balance}\n{site.twice()}")
    told = f"seed {seed}: {dict(storm.struck)}: {balance}"
    assert balance.ok, f"{told}\n{site.twice()}\n{site.errors()}"
