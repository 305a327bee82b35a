"""Every byte flipped, every file cut off at every length and removed: found, and no crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.tools import inspect, validate

from .queries import write_query

if TYPE_CHECKING:
    from pyspark import SparkContext

SWEPT = [
    "metadata",
    "offsets/2",
    "commits/2",
    "sources/0/2",
    "state/0/0/3.delta",
    "state/0/_metadata/metadata",
]
"""A file of each kind, and what the next batch needs."""


ODD = [
    b"v1\n\n",
    b"v1\n \n0",
    b"v1\n{}\n\n",
    b"v2\n\na:0",
    b"v2\n{}\n0",
    b'v3\n{"nextBatchWatermarkMs":3}',
]


def flips(data: bytes) -> Iterator[bytes]:
    """Yield the bytes with one of them changed, each in turn, each in another bit."""
    for place in range(len(data)):
        changed = data[place] ^ (1 << (place % 8))
        yield data[:place] + bytes([changed]) + data[place + 1 :]


def cuts(data: bytes) -> Iterator[bytes]:
    """Yield beginnings of the bytes: each of a short file, every fifth of a longer one."""
    for end in range(0, len(data), 1 if len(data) < 60 else 5):
        yield data[:end]


def errors(place: Path) -> set[str]:
    """Return the paths of which validate says that the query fails; inspect must not crash."""
    inspect(place)
    return {each.path for each in validate(place).findings if each.severity == "error"}


@pytest.fixture
def query(tmp_path: Path) -> Path:
    return write_query(tmp_path / "query", batches=3)


def sidecar(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_any_change_of_a_file_with_a_checksum_is_an_error(query: Path, name: str) -> None:
    path = query / name
    data = path.read_bytes()
    for damaged in (*flips(data), *cuts(data)):
        path.write_bytes(damaged)
        assert name in errors(query), damaged


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_a_damaged_checksum_never_hides_its_file(query: Path, name: str) -> None:
    """What Hadoop reads unchecked is no error; any other change of a checksum is one."""
    path = sidecar(query / name)
    data = path.read_bytes()
    for damaged in (*flips(data), *cuts(data)):
        path.write_bytes(damaged)
        findings = validate(query).findings
        is_header = damaged[:4] != data[:4] or len(damaged) < 8
        if not is_header and damaged[8:] != data[8:]:
            assert [(each.severity, each.path) for each in findings] == [("error", name)]
        else:
            assert all(each.severity != "error" for each in findings) or damaged[4:8] != data[4:8]


@pytest.mark.parametrize("name", SWEPT)
def test_any_change_of_a_file_without_a_checksum_is_survived(query: Path, name: str) -> None:
    path = query / name
    sidecar(path).unlink()
    data = path.read_bytes()
    step = 7 if len(data) > 100 else 1
    for damaged in [*flips(data), *cuts(data)][::step]:
        path.write_bytes(damaged)
        errors(query)
    for damaged in (b"", b"\0" * len(data), b"v1\n" + b"[" * 100_000, b"\xff" * 9, b"v1\n{}\n{}"):
        path.write_bytes(damaged)
        errors(query)


def test_any_file_that_is_removed_is_survived_and_the_needed_are_named(query: Path) -> None:
    for path in sorted(each for each in query.rglob("*") if each.is_file()):
        data = path.read_bytes()
        path.unlink()
        name = str(path.relative_to(query))
        found = {each for each in errors(query) if not each.endswith("/.2.crc")}
        if name in ("metadata", "sources/0/2") or name.endswith(".delta"):
            assert name in found
        elif name == "sources/0/1.compact":
            assert found == {"sources/0/1"}
        elif name in ("offsets/1", "offsets/2"):
            assert found == {"offsets"}
        else:
            assert found == set()
        path.write_bytes(data)


@pytest.mark.spark
def test_what_sparks_own_readers_refuse_is_an_error(sc: SparkContext, query: Path) -> None:
    """Without checksums, so that the content alone tells. Offsets are refused by sources, later."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession(sc)._jsparkSession
    streaming: Any = sc._jvm.org.apache.spark.sql.execution.streaming
    logs = {
        "offsets": streaming.checkpointing.OffsetSeqLog(session, str(query / "offsets"), False),
        "commits": streaming.checkpointing.CommitLog(session, str(query / "commits"), False),
    }

    def spark_reads(folder: str) -> bool:
        try:
            return bool(logs[folder].get(2).isDefined())
        except Exception:
            return False

    for folder in logs:
        path = query / folder / "2"
        sidecar(path).unlink()
        data = path.read_bytes()
        step = 1 if folder == "commits" else 4
        for damaged in (*ODD, *[*flips(data), *cuts(data)][::step]):
            path.write_bytes(damaged)
            if not spark_reads(folder):
                assert f"{folder}/2" in errors(query), damaged
        path.write_bytes(data)
        assert spark_reads(folder)
        assert errors(query) == set()
