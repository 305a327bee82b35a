"""``penstock state ls|get|dump`` over a real state store."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, PenstockError
from penstock.state import Partition, PartitionVersion, Version, VersionLog, partition_of
from penstock.state.update import update_partition
from penstock.storage import open_storage
from tests.cli.commands import Commands

PARTITIONS = 3
STATE = Commands("state")


def keep(key: Any, value: Any, state: Any) -> None:
    state.update(value)


def publish(place: Path, operator: str, batches: dict[int, list[tuple[Any, Any]]]) -> None:
    """Make a version of each batch."""
    storage = open_storage(place / "state")
    log = VersionLog(storage, operator)
    tips: list[str | None] = [None] * PARTITIONS
    for time_ms, pairs in batches.items():
        for number in range(PARTITIONS):
            mine = [pair for pair in pairs if partition_of(pair[0]) % PARTITIONS == number]
            partition = Partition(storage, operator, number, "00000001", str(place / "local"))
            with partition.open(tips[number]) as database:
                update = update_partition(mine, database, keep, time_ms=time_ms, timeout_ms=None)
                tips[number] = partition.commit(database, update, time_ms)
        log.publish(Version(time_ms, tuple(map(PartitionVersion, tips))))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    batches: dict[int, list[tuple[Any, Any]]] = {
        1000: [("a", 1), (7, [1, 2]), (("a", 7), b"\0\1")],
        2000: [("a", {"n": (1,)}), (None, {(1, 2): 3}), ("true", object)],
    }
    publish(tmp_path, "sums", batches)
    return tmp_path


def lines(place: Path, *arguments: str) -> list[Any]:
    printed = STATE.succeed(*arguments, "--checkpoint", str(place))
    return [json.loads(line) for line in printed.splitlines()]


def fail(place: Path, *arguments: str) -> PenstockError:
    return STATE.fail(*arguments, "--checkpoint", str(place))


def test_ls_prints_a_table(place: Path) -> None:
    publish(place, "other", {5000: [("a", 1)]})
    titles, *rows = (
        line.split() for line in STATE.succeed("ls", "--checkpoint", str(place)).splitlines()
    )
    assert titles[:4] == ["operator", "partitions", "keys", "files"]
    newest = [[*row[:3], row[-3], *row[-2:]] for row in rows]
    assert newest == [
        ["other", "3", "1", "1", "5000", "1970-01-01T00:00:05.000Z"],
        ["sums", "3", "5", "2", "2000", "1970-01-01T00:00:02.000Z"],
    ]


def test_ls_as_json(place: Path) -> None:
    publish(place, "other", {5000: [("a", 1)]})
    other, sums = lines(place, "ls", "--json")
    assert (other["operator"], other["versions"], other["keys"]) == ("other", [5000], 1)
    assert (sums["operator"], sums["versions"], sums["keys"]) == ("sums", [1000, 2000], 5)
    files = list((place / "state" / "sums").glob("0*/*"))
    assert (sums["files"], sums["bytes"]) == (len(files), sum(f.stat().st_size for f in files))
    assert [part["partition"] for part in sums["partitions"]] == [0, 1, 2]
    assert sum(part["keys"] for part in sums["partitions"]) == 5


@pytest.mark.parametrize(
    ("key", "state"),
    [
        ("a", {"n": [1]}),
        ('"a"', {"n": [1]}),
        ("7", [1, 2]),
        ("7.0", [1, 2]),
        ('["a", 7]', "AAE="),
        ("null", "{(1, 2): 3}"),
        ('"true"', "<class 'object'>"),
    ],
)
def test_get(place: Path, key: str, state: Any) -> None:
    (line,) = lines(place, "get", key)
    assert line["state"] == state
    assert line["touched_ms"] in (1000, 2000)


def test_get_of_a_key_without_state_is_an_error_and_prints_nothing(place: Path) -> None:
    assert STATE.run("get", "absent", "--checkpoint", str(place)).exit_code == 1
    with pytest.raises(ConfigError, match="key \"absent\" has no state in version 2000 of 'sums'"):
        raise fail(place, "get", "absent")
    hint = str(fail(place, "get", "true").hint)
    assert "penstock state dump" in hint
    assert lines(place, "get", shlex.split(hint[hint.index("'") :])[0])[0]["key"] == "true"


def test_dump_of_the_newest_and_of_an_earlier_version(place: Path) -> None:
    newest = {json.dumps(line["key"]): line["state"] for line in lines(place, "dump")}
    assert newest.keys() == {'"a"', "7", '["a", 7]', "null", '"true"'}
    earlier = {json.dumps(line["key"]): line for line in lines(place, "dump", "--version", "1000")}
    assert earlier['"a"'] == {"key": "a", "state": 1, "touched_ms": 1000}
    assert len(earlier) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dump", "--operator", "x"], "operator 'x' does not exist.*one of: sums"),
        (["get", "a", "--version", "3"], "no version 3.*one of: 1000, 2000"),
    ],
)
def test_what_is_not_there(place: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        raise fail(place, *arguments)


def test_several_operators_need_a_name(place: Path) -> None:
    publish(place, "other", {5000: [("a", 1)]})
    error = fail(place, "dump")
    assert isinstance(error, ConfigError)
    assert "one of: other, sums" in str(error)
    assert lines(place, "dump", "--operator", "other")[0]["key"] == "a"


def test_pickles_of_a_folder_that_others_can_write_are_not_read(place: Path) -> None:
    (place / "state").chmod(0o777)
    assert isinstance(fail(place, "dump"), ConfigError)
    assert isinstance(fail(place, "get", "a"), ConfigError)
    assert lines(place, "ls", "--json")


def test_a_place_without_state(tmp_path: Path) -> None:
    assert isinstance(fail(tmp_path, "ls"), ConfigError)
