"""``penstock checkpoint diff``: two batches, or two locations."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.tools import Change, diff_batches, diff_locations
from penstock.errors import ConfigError
from tests.cli.commands import Commands

from .queries import write_query, write_stateless

_DIFF = Commands("checkpoint", "diff", columns=200)
_INSPECT = Commands("checkpoint", "inspect", columns=200)


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines()]


def test_two_batches_differ_in_offsets_times_and_settings(tmp_path: Path) -> None:
    query = write_query(tmp_path / "query", batches=3)
    path = query / "offsets/2"
    path.write_text(path.read_text().replace('partitions":"2"', 'partitions":"4"'))

    found = diff_batches(query, 0, 2)

    assert found.offsets == (Change("0", {"logOffset": 0}, {"logOffset": 2}, 2),)
    assert found.conf == (Change("spark.sql.shuffle.partitions", "2", "4"),)
    assert found.metadata == (
        Change("batchWatermarkMs", 0, 2, 2),
        Change("batchTimestampMs", 1_700_000_000_000, 1_700_000_002_000, 2000),
    )
    printed = rows(_DIFF.succeed(str(query), "0", "2"))
    assert ["conf", "spark.sql.shuffle.partitions", "2", "4"] in printed
    assert json.loads(_DIFF.succeed(str(query), "0", "2", "--json"))["left"] == 0
    assert _DIFF.succeed(str(query), "1", "1") == "batches 1 and 1 are the same\n"


def test_a_number_that_is_no_batch_id_is_refused(tmp_path: Path) -> None:
    query = write_query(tmp_path / "query", batches=2)

    done = _DIFF.run(str(query), "9" * 5000, "1")

    assert done.exit_code == 2
    assert "two batch ids" in done.output


def test_partitions_are_compared_each(own: Path) -> None:
    printed = rows(_DIFF.succeed(str(own), "0", "2"))

    assert ["source", "0", "clicks", "r0-1", "10", "30", "+20"] in printed
    assert ["source", "0", "clicks", "r0-2", "0", "10", "+10"] in printed


def test_a_new_partition_began_with_0_and_one_that_is_closed_moves_no_more(own: Path) -> None:
    for path, before, after in (
        ("offsets/0", "r0-2", "r0-3"),
        ("offsets/0", '"r0-3":0', '"r0-4":2'),
    ):
        (own / path).write_text((own / path).read_text().replace(before, after))

    changes = {each.name: each.moved for each in diff_batches(own, 0, 2).offsets}

    assert changes == {"0 clicks r0-1": 20, "0 clicks r0-2": 10, "0 clicks r0-4": None}


def test_two_locations_differ_from_where_they_parted(tmp_path: Path) -> None:
    left = write_query(tmp_path / "left", batches=4)
    right = Path(shutil.copytree(left, tmp_path / "right"))
    write_query(left, batches=6)
    (right / "commits/3").unlink()
    (left / "offsets/0").unlink()
    (left / "commits/0").unlink()

    found = diff_locations(left, right)

    assert found.left_only == (4, 5)
    assert found.right_only == (0,)
    assert found.differing == (3,)
    assert found.newest is not None
    assert (found.newest.left, found.newest.right) == (5, 3)
    printed = _DIFF.succeed(str(left), str(right))
    assert "only in left: batches 4, 5" in printed
    assert "in both, with other entries: batches 3" in printed
    assert ["source", "0", "log", "5", "log", "3", "-2"] in rows(printed)


def test_what_is_not_there_is_refused(own: Path) -> None:
    error = _DIFF.fail(str(own), "0", "7")
    assert isinstance(error, ConfigError)
    assert "it keeps batches 0 to 2" in str(error)
    (own / "offsets/1").write_bytes(b"")
    assert "it is empty" in str(_DIFF.fail(str(own), "0", "1"))
    assert "there is no folder" in str(_DIFF.fail(str(own), "elsewhere"))
    assert _DIFF.run(str(own), "0", "x").exit_code == 2


def test_one_batch_is_not_enough(own: Path) -> None:
    done = _DIFF.run(str(own), "1")
    assert done.exit_code == 2
    assert "give two batch ids (A B), or one other location: 1 is neither" in done.output


DELTA = {
    "sourceVersion": 1,
    "reservoirId": "78dca187-ba05-46df-b663-b25d19cd34d2",
    "reservoirVersion": 0,
    "index": 0,
    "isStartingVersion": True,
}
POSITION = "49600867143952561714236237710058640910088621183742246914"


def kinesis(number: int, shards: int) -> dict[str, Any]:
    at = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": f"{POSITION}{number}"}
    parts = {f"shardId-{shard:012d}": at for shard in range(shards)}
    return {"metadata": {"streamName": "rounds", "batchId": str(number)}, **parts}


def auto_loader(number: int) -> dict[str, Any]:
    return {"seqNum": number, "sourceVersion": 1, "lastInputPath": "abfss://in@acct/landing/"}


CHANGED: dict[str, tuple[Any, Any, list[tuple[str, Any, Any, int | None]], str]] = {
    "Delta": (
        DELTA,
        {**DELTA, "reservoirVersion": 3733, "index": -1},
        [("0 reservoirVersion", 0, 3733, 3733), ("0 index", 0, -1, -1)],
        "reservoirVersion 3733, index -1",
    ),
    "Kinesis": (
        kinesis(1, 1),
        kinesis(2, 1),
        [
            ("0 metadata batchId", "1", "2", None),
            ("0 shardId-000000000000 iteratorPosition", f"{POSITION}1", f"{POSITION}2", None),
        ],
        f"metadata batchId 2, shardId-000000000000 iteratorPosition {POSITION}2",
    ),
    "many shards": (kinesis(1, 9), kinesis(2, 9), [], "and 6 more"),
    "Auto Loader": (auto_loader(8), auto_loader(21), [("0 seqNum", 8, 21, 13)], "seqNum 21"),
    "text": (
        "s3://" + "a" * 400 + "/1",
        "s3://" + "a" * 400 + "/2",
        [],
        "...aaaaaaaaaaaaaaaaaaa/2",
    ),
    "an array": (
        [{"shard": "a" * 40, "at": 5}],
        [{"shard": "a" * 40, "at": 9}],
        [("0 0 at", 5, 9, 4)],
        "0 at 9",
    ),
    "not begun": (
        {"hub": {"0": -1, "1": -1, "2": 7}},
        {"hub": {"0": 1200, "1": -1, "2": 9}},
        [("0 hub 0", -1, 1200, None), ("0 hub 2", 7, 9, 2)],
        "hub 1,209 in 2 partitions and -1 in 1",
    ),
}
"""The offsets of two batches, what changed, and what `inspect` shows of the second one."""


@pytest.mark.parametrize("case", CHANGED)
def test_what_differs_is_shown_of_the_offsets_of_any_source(tmp_path: Path, case: str) -> None:
    query = write_stateless(tmp_path / "query", batches=2)
    before, after, changes, shown = CHANGED[case]
    for batch_id, offset in enumerate((before, after)):
        text = offset if isinstance(offset, str) else json.dumps(offset, separators=(",", ":"))
        path = query / f"offsets/{batch_id}"
        path.write_text(path.read_text().rpartition("\n")[0] + f"\n{text}")
        path.with_name(f".{batch_id}.crc").unlink()

    found = diff_batches(query, 0, 1).offsets
    assert found
    assert not changes or [(c.name, c.left, c.right, c.moved) for c in found] == changes
    for line in _DIFF.succeed(str(query), "0", "1").splitlines()[1 : len(found) + 1]:
        _, left, right, *_ = re.split(" {2,}", line)
        assert left != right
    (first,), (second,) = (
        [row for row in _INSPECT.succeed(str(query)).splitlines() if row.startswith(f"    {n}  ")]
        for n in (0, 1)
    )
    assert shown in second
    assert first[6:] != second[6:]
    one = _INSPECT.succeed(str(query), "--batch", "1")
    assert all(name.removeprefix("0 ") in one.replace("  ", " ") for name, *_ in changes)
