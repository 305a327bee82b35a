"""The promise for every built-in source: whatever is killed, stopped or cut, nothing acked is lost.

Clients outside Spark send numbered records to two receivers of each source's stream, one in Spark
and one in `penstock ingest`, while a storm of faults goes over all of it; then their ledgers are
compared with what the program wrote. One storm strikes all sources, which share a program, with
each fault that there is; `make soak` has storms of 60 faults for each one alone.
"""

from __future__ import annotations

from collections import Counter
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
from tests.seeds import storm_seed
from tests.waiting import eventually

pytestmark = pytest.mark.spark

SOURCES: dict[str, Callable[[Path], Source]] = {
    "tail": TailSource,
    "socket": lambda root: SocketSource(),
    "http": lambda root: HttpSource(),
    "mqtt": MqttSource,
}

NAMES = [pytest.param(name, marks=needs_mosquitto if name == "mqtt" else ()) for name in SOURCES]


@pytest.mark.storm
@needs_mosquitto
def test_each_fault_strikes_each_source(tmp_path: Path) -> None:
    struck = weather(tmp_path, list(SOURCES))
    assert len(struck) == 7
    assert min(struck.values()) >= 2


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_sixty_faults(name: str, tmp_path: Path) -> None:
    weather(tmp_path, [name], faults=60)


def weather(root: Path, names: list[str], faults: int | None = None) -> Counter[str]:
    """Let a storm go over a site, check that the ledgers balance, and return what struck."""
    seed = storm_seed()
    site = Site(root, {name: SOURCES[name](root) for name in names})
    storm = Storm(site, seed)
    with site.running():
        with site.sending():
            site.spark.wait_line("committed")
            storm.rage(faults)
            assert eventually(site.recovered), f"seed {seed}: {site.state()}"
        balances = site.settle()
    told = f"seed {seed}: {dict(storm.struck)}"
    told += "".join(f"\n{name}: {balance}" for name, balance in balances.items())
    print(told, site.twice(), sep="\n")
    assert all(balance.ok for balance in balances.values()), (
        f"{told}\n{site.twice()}\n{site.errors()}"
    )
    return storm.struck
