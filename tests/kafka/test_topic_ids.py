"""Offsets and the ids of the topics that they were read in go together, whatever takes them.

A topic ``b`` was read up to its sixth record, deleted, and created anew with ten others; its
neighbour ``a`` stays. Each command is run then. It refuses; or the next start refuses; or what was
chosen is of the new topic, and the next start reads from there. A start that takes the old offsets
for those of the new topic would pass over its first records.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.errors import KafkaDataLossError
from penstock.kafka.generations import Generations
from penstock.kafka.offsets import from_json
from penstock.kafka.planner import Planner
from penstock.kafka.topics import Topics
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.waiting import eventually

from .broker import Broker
from .test_commands import own_program, spark_query

PENSTOCK = Commands(columns=200)
A, B = "ids-a", "ids-b"
OF_A_QUERY = "0"


@dataclass
class Site:
    """Locations of readers of both topics, made before ``b`` was created anew."""

    broker: Broker
    folder: Path


@pytest.fixture(scope="module")
def prepared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("ids")
    for topic in (A, B):
        broker.create_topic(topic, 2)
        broker.produce(topic, [b"%d" % n for n in range(6)])
    ids = Topics(broker.conf, [A, B]).ids()
    offsets = [{t: {"0": end, "1": 0} for t in (A, B)} for end in (3, 6)]
    own_program(folder / "program", *offsets)
    Generations(open_storage(folder / "program"), "clicks").observe(ids)
    spark_query(folder / "query", *offsets)
    Generations(open_storage(folder / "query"), OF_A_QUERY).observe(ids)
    broker.delete_topic(B)
    assert eventually(lambda: not broker.has_topic(B))
    broker.create_topic(B, 2)
    broker.produce(B, [b"new %d" % n for n in range(10)])
    return Site(broker, folder)


@pytest.fixture
def site(prepared: Site, tmp_path: Path) -> Site:
    """A copy for each test."""
    shutil.copytree(prepared.folder, tmp_path, dirs_exist_ok=True)
    return Site(prepared.broker, tmp_path)


# -- where the next start of each kind reads b from; KafkaDataLossError if it does not start --


def program_reads(site: Site, place: str, stream: str = "clicks") -> int | None:
    storage = open_storage(site.folder / place)
    entries = filter(str.isdecimal, storage.names("offsets"))
    entry = max(entries, key=int, default=None)
    path = f"sources/{stream}/0" if entry is None else f"offsets/{entry}"
    begin = from_json(json.loads(storage.read(path).decode().splitlines()[-1]))
    planner = Planner(Topics(site.broker.conf, [A, B]), storage, stream, "fail")
    ranges = planner.ranges(begin, planner.latest(begin))
    return next((each.start_offset for each in ranges if each.topic == B), None)


REFUSED, CARRIED = "refused by the command", "refused by the next start"
BROKERS = "(brokers)"
BACK = json.dumps({"0": {A: {"0": 3, "1": 0}, B: {"0": 2, "1": 0}}}, separators=(",", ":"))

PROGRAMS = [
    ("checkpoint rewind program --apply --to-batch 0", "program", CARRIED),
    ("checkpoint rewind program --apply --to-batch 0 (brokers)", "program", REFUSED),
    (f"checkpoint rewind program --apply --to-offsets {BACK}", "program", CARRIED),
    (f"checkpoint rewind program --apply --to-offsets {BACK} (brokers)", "program", REFUSED),
    (f"checkpoint rewind query --apply --to-offsets {BACK}", "query", CARRIED),
    (f"checkpoint rewind query --apply --to-offsets {BACK} (brokers)", "query", REFUSED),
    ("kafka reset program --apply (brokers) --to-earliest", "program", REFUSED),
    ("checkpoint rewind query --apply --to-batch 0", "query", CARRIED),
    ("checkpoint rewind query --apply --to-batch 0 (brokers)", "query", REFUSED),
    ("checkpoint promote query 0 --apply", "query", CARRIED),
    ("checkpoint promote query 0 --apply (brokers)", "query", REFUSED),
    ("kafka reset query --apply (brokers) --to-earliest", "query", REFUSED),
    ("checkpoint fork query new --apply", "new", CARRIED),
]


def run(site: Site, line: str) -> None:
    places = {"program", "query", "new"}
    words = []
    for word in line.split():
        if word == BROKERS:
            words += ["--brokers", site.broker.address]
        else:
            words.append(str(site.folder / word) if word in places else word)
    PENSTOCK.succeed(*words)


def check(site: Site, line: str, expected: object, start: Callable[[], object]) -> None:
    if expected is REFUSED:
        with pytest.raises(KafkaDataLossError, match="created anew"):
            run(site, line)
        return
    run(site, line)
    if expected is CARRIED:
        with pytest.raises(KafkaDataLossError, match="created anew"):
            start()
    else:
        assert start() == expected


@pytest.mark.parametrize(("line", "place", "expected"), PROGRAMS)
def test_programs_and_queries(site: Site, line: str, place: str, expected: object) -> None:
    has = site.folder / place / "sources" / OF_A_QUERY
    check(
        site,
        line,
        expected,
        lambda: program_reads(site, place, OF_A_QUERY if has.exists() else "clicks"),
    )
