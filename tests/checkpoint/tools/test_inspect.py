"""``penstock checkpoint inspect`` on what real queries leave."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.checkpoint.tools import Checkpoint, NextBatch, inspect, last_state, validate
from penstock.errors import ConfigError
from tests.cli.commands import Commands

from .conftest import ROCKS_DB, file_rows, json_of, run_to_the_end, settings, write_inputs
from .queries import write_query
from .test_validate import edit

if TYPE_CHECKING:
    from pyspark import SparkContext

_INSPECT = Commands("checkpoint", "inspect", columns=200)


@pytest.mark.spark
def test_a_query_of_spark_is_read_as_it_is(counted: Path) -> None:
    found = inspect(counted)

    assert found.engine == "Structured Streaming"
    assert found.id == json.loads((counted / "metadata").read_text())["id"]
    assert found.next == NextBatch(6)
    assert found.problems == ()
    assert [each.batch_id for each in found.batches] == [0, 1, 2, 3, 4, 5]
    for each in found.batches:
        logged = json_of(counted / f"offsets/{each.batch_id}")
        assert (each.planned, each.committed) == (True, True)
        assert each.time_ms == logged["batchTimestampMs"]
        assert each.watermark_ms == logged["batchWatermarkMs"]
        assert each.conf == logged["conf"]
        commit = json_of(counted / f"commits/{each.batch_id}")
        assert each.next_watermark_ms == commit["nextBatchWatermarkMs"]
        assert each.offsets == {"0": {"logOffset": min(each.batch_id, 4)}}
        assert each.took_ms is not None
        assert 0 <= each.took_ms < 60_000
    (source,) = found.sources
    assert (source.source, source.newest) == ("0", "4")
    (operator,) = found.operators
    assert (operator.name, operator.format) == ("stateStoreSave", "HDFS-backed")
    assert (operator.partitions, operator.stores) == (2, ("default",))
    assert (operator.oldest_version, operator.newest_version) == (1, 6)
    files = [each for each in (counted / "state").rglob("*") if each.is_file()]
    assert (operator.files, operator.size_bytes) == (
        len(files),
        sum(each.stat().st_size for each in files),
    )


@pytest.mark.spark
def test_a_join_in_rocks_db_is_read_with_all_its_stores(sc: SparkContext, tmp_path: Path) -> None:
    """With checkpoint ids in the names of its files, and Spark's own checksums beside them."""
    from pyspark.sql import SparkSession, functions

    session, place = SparkSession(sc), tmp_path / "location"
    write_inputs(tmp_path / "in", count=2)
    left, right = (file_rows(session, tmp_path / "in").alias(name) for name in ("a", "b"))
    prefix = "spark.sql.streaming.stateStore."
    conf = {
        f"{prefix}providerClass": ROCKS_DB,
        f"{prefix}checkpointFormatVersion": "2",
        f"{prefix}rocksdb.changelogCheckpointing.enabled": "true",
    }
    with settings(session, conf):
        joined = left.join(right, functions.expr("a.key = b.key AND a.time = b.time"))
        run_to_the_end(joined, place)

    found = inspect(place)
    (operator,) = found.operators
    assert (operator.name, operator.format) == ("symmetricHashJoin", "RocksDB")
    assert (operator.partitions, len(operator.stores)) == (2, 4)
    assert operator.newest_version == found.next.first
    assert set(found.batches[0].offsets) == {"0", "1"}
    assert found.batches[-1].commit_version == 2
    assert validate(place).findings == ()

    version = found.next.first
    for path in [*place.glob(f"state/0/1/*/{version}_*"), *place.glob(f"state/0/1/*/.{version}_*")]:
        path.unlink()
    missing = {each.path for each in validate(place).findings if each.severity == "error"}
    stores = {f"state/0/1/{store}/{version}.changelog" for store in operator.stores}
    assert missing >= stores


@pytest.mark.spark
def test_it_is_printed_for_people(location: Path) -> None:
    (location / "commits/5").unlink()

    printed = _INSPECT.succeed(str(location), "--last", "2")

    assert "next: batch 5 with the same offsets, unless it runs now: it is not committed" in printed
    rows = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert " committed " in rows["4"]
    assert "log 4 (+1)" in rows["4"]
    assert " NOT COMMITTED " in rows["5"]
    assert "log 4 (+0)" in rows["5"]
    assert "and 4 earlier (--last)" in printed
    assert "stateStoreSave" in printed


@pytest.mark.spark
def test_one_batch_is_printed_with_all_that_is_known(location: Path) -> None:
    printed = _INSPECT.succeed(str(location), "--batch", "2")

    assert printed.startswith("batch 2: committed\n")
    assert ["0", "log", "1", "log", "2", "+1"] in [line.split() for line in printed.splitlines()]
    assert "spark.sql.shuffle.partitions" in printed


def test_a_program_of_penstock_is_read_too(own: Path) -> None:
    found = inspect(own)

    assert found.engine == "penstock"
    assert found.next == NextBatch(3, rerun=(1,))
    assert [each.committed for each in found.batches] == [True, False, True]
    assert found.batches[2].offsets == {"0": {"clicks": {"r0-1": 30, "r0-2": 10}}, "1": None}
    assert found.batches[2].start_offsets == found.batches[1].offsets

    printed = _INSPECT.succeed(str(own))
    assert "next: batch 1 with the same offsets" in printed
    assert "clicks 40 in 2 partitions (+15)" in printed
    rows = [line.split() for line in _INSPECT.succeed(str(own), "--batch", "2").splitlines()]
    assert ["0", "clicks", "r0-2", "5", "10", "+5"] in rows


def test_json_holds_all_batches(own: Path) -> None:
    printed = json.loads(_INSPECT.succeed(str(own), "--json"))

    assert [each["batch_id"] for each in printed["batches"]] == [0, 1, 2]
    assert printed["next"] == {"batch_id": 3, "rerun": [1], "problem": None}
    assert printed["batches"][0]["time"] == "2020-09-13T12:26:40.000Z"


def test_damage_hides_nothing_else(own: Path) -> None:
    (own / "offsets/1").write_bytes(b"v1\n{")
    (own / "commits/0").write_bytes(b"")

    found = inspect(own)

    assert [problem.path for problem in found.problems] == ["commits/0", "offsets/1"]
    assert found.batches[1].planned
    assert found.batches[1].offsets == {}
    assert found.batches[0].committed
    done = _INSPECT.run(str(own))
    assert "UNREADABLE offsets/1: Log file was malformed" in done.output
    assert "CANNOT START: offsets/1 cannot be read" in done.output  # batch 1 runs again
    assert done.exit_code == 2


def test_copied_files_tell_no_duration(own: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(own, tmp_path / "copy", copy_function=shutil.copyfile)

    assert [each.took_ms for each in inspect(copy).batches] == [None, None, None]


def test_what_is_no_location_is_refused_and_not_touched(own: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    assert "there is no folder" in str(_INSPECT.fail(str(tmp_path / "nowhere")))
    assert "is a file" in str(_INSPECT.fail(str(own / "metadata")))
    assert "not a checkpoint location" in str(_INSPECT.fail(str(empty)))
    assert list(empty.iterdir()) == []
    error = _INSPECT.fail(str(own), "--batch", "9")
    assert isinstance(error, ConfigError)
    assert "it keeps batches 0 to 2" in str(error)


def test_a_location_without_batches_begins_with_batch_0(tmp_path: Path) -> None:
    with CheckpointLocation(tmp_path / "new"):
        pass

    assert inspect(tmp_path / "new").next == NextBatch(0)
    assert "next: batch 0, the first" in _INSPECT.succeed(str(tmp_path / "new"))


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of an object store."""
    asked: list[str] = []
    for name in ("ls", "find", "cat_file", "info"):
        method = getattr(MemoryFileSystem, name)

        def noted(
            files: MemoryFileSystem, path: str, *args: object, _of: object = method, **more: object
        ) -> object:
            asked.append(path)
            result = _of(files, path, *args, **more)  # type: ignore[operator]
            del asked[asked.index(path) + 1 :]  # what it asks for of itself is one request
            return result

        monkeypatch.setattr(MemoryFileSystem, name, noted)
    return asked


def test_an_object_store_is_asked_for_each_file_once(requests: list[str]) -> None:
    url = f"memory://{uuid.uuid4().hex}/location"
    with CheckpointLocation(url) as driver:
        for batch_id in range(40):
            driver.plan(batch_id, OffsetSeq(batch_id, sources=(str(batch_id),)))
            driver.commit(batch_id)
    requests.clear()

    found = inspect(url)

    assert len(found.batches) == 40
    assert len(requests) <= 1.2 * (2 * 40 + 1)


def test_the_last_state_costs_five_requests(requests: list[str]) -> None:
    url = f"memory://{uuid.uuid4().hex}/location"
    with CheckpointLocation(url) as driver:
        for batch_id in range(40):
            driver.plan(batch_id, OffsetSeq(batch_id, sources=(str(batch_id),)))
            driver.commit(batch_id)
        driver.plan(40, OffsetSeq(40, sources=("40",)))
    requests.clear()

    found = last_state(url)

    assert len(requests) <= 5
    assert found.id == inspect(url).id
    assert found.newest is not None
    assert found.newest.end_offsets == {"0": 40}
    assert (found.committed, found.next) == (39, NextBatch(41, rerun=(40,)))


def test_the_last_state_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a checkpoint location"):
        last_state(tmp_path)
    with CheckpointLocation(tmp_path / "new"):
        pass
    assert last_state(tmp_path / "new").next == NextBatch(0)


def test_files_that_are_retired_meanwhile_are_left_out(own: Path) -> None:
    checkpoint = Checkpoint.open(own)
    assert checkpoint.planned == (0, 1, 2)
    for log in ("offsets", "commits"):
        (own / log / "0").unlink()

    assert [batch.batch_id for batch in checkpoint.batches()] == [1, 2]


def test_numbers_beyond_64_bits_are_survived(own: Path) -> None:
    path = own / "offsets/2"
    text, long = path.read_text(), "9" * 4300
    assert '"spark.penstock.keptFrom":"0"' in text
    for damaged in (
        text.replace('keptFrom":"0"', f'keptFrom":"{long}{long}"'),
        text.replace("1600000002000", str(2**63 - 1)),
        text.replace('"r0-1":30,"r0-2":10', f'"r0-1":{long},"r0-2":{long}'),
        text.replace('"r0-1":30', f'"r0-1":{long}{long}'),
    ):
        assert damaged != text
        edit(path, lambda _, damaged=damaged: damaged)  # type: ignore[misc]
        for arguments in ([], ["--batch", "2"], ["--json"]):
            _INSPECT.succeed(str(own), *arguments)
        Commands("checkpoint", "diff").succeed(str(own), "1", "2")
        validate(own)


def test_a_writer_that_is_closed_takes_nothing_back(own: Path) -> None:
    """Its offset is in the batch before, and in no later one."""
    path = own / "offsets/2"
    path.write_text(path.read_text().replace('"r0-1":30,"r0-2":10', '"r0-2":10,"r0-3":4'))
    (own / "offsets/.2.crc").unlink()
    assert "(+9 or more)" in _INSPECT.succeed(str(own))


def test_the_last_state_tells_whether_entries_may_be_left_out(tmp_path: Path) -> None:
    """Of a query with state none may: so its folder is listed where it counts."""
    place = write_query(tmp_path / "query", batches=8)
    for batch_id in (2, 3, 5, 6):
        for log in ("offsets", "commits"):
            (place / f"{log}/{batch_id}").unlink()
    assert last_state(place).next == inspect(place).next
    assert last_state(place).next.problem is not None


def test_the_entry_before_the_newest_is_read_by_every_start(tmp_path: Path) -> None:
    place = write_query(tmp_path / "query", batches=5)
    (place / "offsets/3").write_bytes(b"")
    for options in ([], ["--last", "1"]):
        done = _INSPECT.run(str(place), *options)
        assert "CANNOT START: offsets/3 cannot be read: Incomplete log file" in done.output
        assert done.exit_code == 2


@pytest.mark.parametrize("front_end", ["query", "program"])
@pytest.mark.parametrize("content", [None, b"", b'{"id":"6cc7d9a3', b"altered"])
def test_a_start_reads_the_id(
    own: Path, tmp_path: Path, front_end: str, content: bytes | None
) -> None:
    place = own if front_end == "program" else write_query(tmp_path / "query", batches=5)
    path = place / "metadata"
    if content is None:
        path.unlink()
    elif content == b"altered":  # it is an id still
        path.write_bytes(path.read_bytes().translate(bytes.maketrans(b"12345678", b"21436587")))
    else:
        path.write_bytes(content)
    done = _INSPECT.run(str(place))
    assert "CANNOT START: metadata " in done.output
    assert done.exit_code == 2
