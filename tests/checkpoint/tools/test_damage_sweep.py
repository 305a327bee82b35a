"""Every byte flipped, every file cut off at every length and removed: found, and no crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_any_change_of_a_file_with_a_checksum_is_an_error(query: Path, name: str) -> None:
    path = query / name
    data = path.read_bytes()
    for damaged in (*flips(data), *cuts(data)):
        path.write_bytes(damaged)
        assert name in errors(query), damaged


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_a_damaged_checksum_never_hides_its_file(query: Path, name: str) -> None:
    """What Hadoop reads unchecked is not an error; any other change of a checksum is one."""
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


@pytest.mark.storm
@pytest.mark.spark
def test_no_file_of_spark_is_missed(location: Path) -> None:
    """Each file that a real query left is removed, and cut in half: that is found, and named."""
    for path in sorted(each for each in location.rglob("*") if each.is_file()):
        data, name = path.read_bytes(), str(path.relative_to(location))
        if path.suffix == ".crc":
            continue
        path.unlink()
        inspect(location)
        assert validate(location).findings, name
        path.write_bytes(data[: len(data) // 2])
        inspect(location)
        assert name in {each.path for each in validate(location).findings}
        path.write_bytes(data)
    assert validate(location).findings == ()


def spark_readers(sc: SparkContext, query: Path) -> dict[str, Callable[[], Any]]:
    """Return what reads each kind of file, as Spark does; it raises for what it refuses."""
    from pyspark.sql import SparkSession

    session: Any = SparkSession(sc)._jsparkSession
    jvm: Any = sc._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    metadata = jvm.org.apache.hadoop.fs.Path(str(query / "metadata"))
    hadoop_conf: Any = sc._jsc.hadoopConfiguration()
    offsets = streaming.checkpointing.OffsetSeqLog(session, str(query / "offsets"), False)
    commits = streaming.checkpointing.CommitLog(session, str(query / "commits"), False)
    files = streaming.runtime.FileStreamSourceLog(1, session, str(query / "sources/0"))
    return {
        "metadata": lambda: streaming.runtime.StreamMetadata.read(metadata, hadoop_conf).get(),
        "offsets/2": lambda: offsets.get(2).get(),
        "commits/2": lambda: commits.get(2).get(),
        "sources/0/2": lambda: list(files.allFiles()),
    }


STEPS = {"metadata": 1, "offsets/2": 4, "commits/2": 1, "sources/0/2": 2}
"""So many of the changes are left out but one."""


@pytest.mark.storm
@pytest.mark.spark
@pytest.mark.parametrize("name", STEPS)
def test_what_sparks_own_readers_refuse_is_an_error(
    sc: SparkContext, query: Path, name: str
) -> None:
    """Without checksums, so that the content alone tells. Offsets are refused by sources, later."""
    read, path = spark_readers(sc, query)[name], query / name
    sidecar(path).unlink()
    data = path.read_bytes()

    def spark_reads() -> bool:
        try:
            return read() is not None
        except Exception:
            return False

    assert spark_reads()
    assert errors(query) == set()
    refused = 0
    for damaged in (*ODD, *[*flips(data), *cuts(data)][:: STEPS[name]]):
        path.write_bytes(damaged)
        if not spark_reads():
            refused += 1
            assert name in errors(query), damaged
    assert refused > len(ODD)
