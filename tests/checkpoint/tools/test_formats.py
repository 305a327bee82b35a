"""What other releases and sources write. Made by hand from public examples, but for v2 of 4.x."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.commit_log import CommitLog, CommitMetadata
from penstock.checkpoint.offset_log import OffsetLog
from penstock.checkpoint.tools import Inspection, inspect, validate
from penstock.checkpoint.tools.offsets import inputs_of
from penstock.storage import open_storage
from tests.cli.commands import Commands

SPARK_2_4 = """v1
{"batchWatermarkMs":1564634495145,"batchTimestampMs":1564634518664,"conf":{"spark.sql.streaming.stateS\
tore.providerClass":"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider","spa\
rk.sql.shuffle.partitions":"200"}}
{"raw_data":{"0":246189}}"""
SPARK_3_5 = """v1
{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{"spark.sql.streaming.stateStore.provide\
rClass":"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider","spark.sql.strea\
ming.join.stateFormatVersion":"2","spark.sql.streaming.stateStore.compression.codec":"lz4","spark.sql.\
streaming.stateStore.rocksdb.formatVersion":"5","spark.sql.streaming.statefulOperator.useStrictDistrib\
ution":"true","spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion":"2","spark.sql.streaming\
.multipleWatermarkPolicy":"min","spark.sql.streaming.aggregation.stateFormatVersion":"2","spark.sql.sh\
uffle.partitions":"200"}}
{"clicks":{"1":7,"0":5}}
3"""
DELTA = '{"sourceVersion":1,"reservoirId":"9b3c","reservoirVersion":4,"index":-1}'
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1600000000000,"conf":{}}'


def location(place: Path, offsets: str, commit: str = 'v1\n{"nextBatchWatermarkMs":0}') -> Path:
    """Write a location of one committed batch."""
    for folder, text in (("offsets", offsets), ("commits", commit)):
        (place / folder).mkdir(parents=True)
        (place / folder / "0").write_text(text)
    (place / "metadata").write_text('{"id":"6cc7d9a3-dd4b-4da6-9c38-5168a8ee4ce7"}')
    return place


def sound(place: Path) -> Inspection:
    """Return what is known of a location in which nothing is wrong."""
    assert validate(place).findings == ()
    return inspect(place)


@pytest.mark.parametrize(
    ("offsets", "expected", "text"),
    [
        (
            SPARK_3_5,
            {"0": {"clicks": {"1": 7, "0": 5}}, "1": 3},
            "clicks 12 in 2 partitions",
        ),
        (SPARK_2_4, {"0": {"raw_data": {"0": 246189}}}, "raw_data 246,189"),
        ('v1\n\n{"clicks":{"0":5}}', {"0": {"clicks": {"0": 5}}}, "clicks 5"),  # Spark 2.1
        (
            f"v1\n{METADATA}\n{DELTA}",
            {"0": json.loads(DELTA)},
            "sourceVersion 1, reservoirId 9b3c, reservoirVersion 4, index -1",
        ),
        (f"v1\n{METADATA}\n7\n-", {"0": 7, "1": None}, "7"),
        (f'v2\n{METADATA}\norders:{{"t":{{"0":1,"1":2}}}}\nidle:-', None, "t 3 in 2 partitions"),
    ],
)
def test_offsets_are_kept_as_they_are(
    tmp_path: Path, offsets: str, expected: dict[str, Any] | None, text: str
) -> None:
    (batch,) = sound(location(tmp_path, offsets)).batches

    assert batch.offsets == (expected or {"orders": {"t": {"0": 1, "1": 2}}, "idle": None})
    assert text in Commands("checkpoint", "inspect").succeed(str(tmp_path))


@pytest.mark.parametrize(
    "commit",
    [
        "v1\n{}",  # before Spark 2.4
        'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[[["a"]]]}}',
        'v3\n{"nextBatchWatermarkMs":5,"sinkMetadataMap":{}}',
    ],
)
def test_commits_of_every_version_are_read(tmp_path: Path, commit: str) -> None:
    place = location(tmp_path, SPARK_2_4, commit)

    assert sound(place).batches[0].commit_version == int(commit[1])


def test_an_offset_that_is_no_json_stands_as_it_is(tmp_path: Path) -> None:
    place = location(tmp_path, f"v1\n{METADATA}\nsome words")

    assert inspect(place).batches[0].offsets == {"0": "some words"}
    assert validate(place).findings == ()


def test_kafkas_first_offsets_begin_with_a_zero_byte(tmp_path: Path) -> None:
    place = location(tmp_path, SPARK_2_4)
    (place / "sources/0").mkdir(parents=True)
    (place / "sources/0/0").write_bytes(b'\0v1\n{"raw_data":{"0":0}}')

    (source,) = sound(place).sources
    assert source.newest == "0"


@pytest.mark.parametrize(
    ("offset", "called"),
    [
        ({"clicks": {"r0-00000000": 3}}, ["clicks"]),
        ({"orders": {"0": 3, "1": 0}}, ["1"]),  # topics: by the source's place
        ({"(first batch)": {}}, ["1"]),
        ({"logOffset": 3}, []),
        (7, []),
        (None, []),
    ],
)
def test_inputs_have_one_name_for_pages_and_commands(offset: object, called: list[str]) -> None:
    assert inputs_of("1", offset) == called


def test_a_source_of_another_kind_keeps_what_it_wants(tmp_path: Path) -> None:
    place = location(tmp_path, f'v1\n{METADATA}\n"words"')
    (place / "sources/0").mkdir(parents=True)
    (place / "sources/0/0").write_bytes(b"\x80\x04K*.")

    assert {each.severity for each in validate(place).findings} <= {"note"}


def test_state_of_rocks_db_is_told_by_its_names(tmp_path: Path) -> None:
    place = location(tmp_path, SPARK_2_4)
    folder = place / "state/0/0"
    (folder / "SSTs").mkdir(parents=True)
    (folder / "SSTs/000008-a.sst").write_bytes(b"12345")
    (folder / "1.zip").write_bytes(b"123")

    (operator,) = sound(place).operators
    assert (operator.format, operator.newest_version, operator.size_bytes) == ("RocksDB", 1, 8)
    (folder / "1.zip").rename(folder / "2_b1e-f.changelog")
    assert [each.path for each in validate(place).findings] == ["state/0/0/1.changelog"]


def test_state_that_a_commit_names_by_its_id_has_to_be_there(tmp_path: Path) -> None:
    commit = {"nextBatchWatermarkMs": 0, "stateUniqueIds": {"0": [["b1e-f"], ["c2"]]}}
    place = location(tmp_path, SPARK_2_4, f"v2\n{json.dumps(commit)}")
    for partition, name in ((0, "1_b1e-f.zip"), (1, "1_c2.changelog"), (1, "1_c3.changelog")):
        folder = place / f"state/0/{partition}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"123")
    assert sound(place).operators[0].partitions == 2

    (place / "state/0/1/1_c2.changelog").unlink()

    assert [each.path for each in validate(place).findings] == ["state/0/1/1_c2"]


def test_the_documented_bytes_are_those_that_are_written(tmp_path: Path) -> None:
    doc = (Path(__file__).parents[3] / "docs/checkpoints.md").read_text()
    (literal,) = re.findall(r"^```python\n(\{\n.*?)^```", doc, re.M | re.S)
    documented = ast.literal_eval(literal)
    storage = open_storage(tmp_path)
    sources = ('{"raw_data":{"0":246189}}', None)
    conf = {"spark.sql.shuffle.partitions": "200"}
    entry = OffsetSeq(1564634518664, 1564634495145, conf, sources)
    OffsetLog(storage).add(7, entry)
    CommitLog(storage).add(7, CommitMetadata(1564634495145))
    for path in documented.keys() - {"metadata"}:
        assert (tmp_path / path).read_bytes() == documented[path]

    with CheckpointLocation(tmp_path / "own") as driver:
        driver.plan(0, entry)
    own = (tmp_path / "own/metadata").read_bytes()
    uuid = rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    assert re.sub(uuid, b"", own) == re.sub(uuid, b"", documented["metadata"])
