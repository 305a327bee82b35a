"""Offsets and the ids of the topics that they were read in go together, whatever takes them.

A topic ``b`` was read up to its sixth record, deleted, and created again with ten others; its
neighbour ``a`` stays. Each command is run then. It refuses; or the next start refuses; or what was
chosen is of the new topic, and the next start reads from there. A start that takes the old offsets
for those of the new topic would pass over its first records.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from penstock.errors import KafkaDataLossError
from penstock.kafka.offsets import from_json, ids_in
from penstock.kafka.planner import Planner
from penstock.kafka.topics import Topics
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.waiting import eventually

from .broker import Broker
from .test_commands import own_program, spark_query

PENSTOCK = Commands(columns=200)
A, B = "ids-a", "ids-b"


@pytest.fixture(scope="module")
def prepared(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Locations of readers of both topics, made before ``b`` was created again."""
    folder = tmp_path_factory.mktemp("ids")
    for topic in (A, B):
        broker.create_topic(topic, 2)
        broker.produce(topic, [b"%d" % n for n in range(6)])
    ids = {f"{topic}@{each}": {} for topic, each in Topics(broker.conf, [A, B]).ids().items()}
    offsets = [{**{t: {"0": end, "1": 0} for t in (A, B)}, **ids} for end in (3, 6)]
    own_program(folder / "program", *offsets)
    spark_query(folder / "query", *offsets)
    broker.delete_topic(B)
    assert eventually(lambda: not broker.has_topic(B))
    broker.create_topic(B, 2)
    broker.produce(B, [b"new %d" % n for n in range(10)])
    return folder


def reads(broker: Broker, location: Path) -> int | None:
    """Return where the next start reads b from; KafkaDataLossError if it does not start."""
    storage = open_storage(location)
    entry = max(filter(str.isdecimal, storage.names("offsets")), key=int)
    begin = json.loads(storage.read(f"offsets/{entry}").decode().splitlines()[-1])
    planner = Planner(Topics(broker.conf, [A, B]), storage, "clicks", "earliest")
    start = from_json(begin)
    ranges = planner.ranges(start, planner.latest(start, ids_in(begin)))
    return next((each.start_offset for each in ranges if each.topic == B), None)


REFUSED, CARRIED = "refused by the command", "refused by the next start"
BROKERS = "(brokers)"
BACK = json.dumps({"0": {A: {"0": 3, "1": 0}, B: {"0": 2, "1": 0}}}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("line", "place", "expected"),
    [
        ("rewind program --apply --to-batch 0", "program", CARRIED),
        ("rewind program --apply --to-batch 0 (brokers)", "program", REFUSED),
        (f"rewind program --apply --to-offsets {BACK} (brokers)", "program", 2),
        (f"rewind query --apply --to-offsets {BACK} (brokers)", "query", 2),
        ("rewind query --apply --to-batch 0", "query", CARRIED),
        ("promote query 0 --apply", "query", CARRIED),
        ("promote query 0 --apply (brokers)", "query", REFUSED),
        ("fork query new --apply", "new", CARRIED),
    ],
)
def test_programs_and_queries(
    broker: Broker, prepared: Path, tmp_path: Path, line: str, place: str, expected: object
) -> None:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    command = ["checkpoint"]
    for word in line.split():
        is_place = word in ("program", "query", "new")
        brokers = ["--brokers", broker.address]
        command += brokers if word == BROKERS else [str(tmp_path / word) if is_place else word]
    if expected is REFUSED:
        assert isinstance(PENSTOCK.fail(*command), KafkaDataLossError)
        return
    PENSTOCK.succeed(*command)
    if expected is CARRIED:
        with pytest.raises(KafkaDataLossError, match="created again"):
            reads(broker, tmp_path / place)
    else:
        assert reads(broker, tmp_path / place) == expected
