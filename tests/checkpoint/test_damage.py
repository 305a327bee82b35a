"""Every file cut at every length and every bit of it flipped: found and named.

On a local file system checksums find all of it. Without them, the text format alone finds whatever
does not leave a file that Spark would write for another entry; ``test_what_the_format_alone_finds``
states what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import CheckpointLocation
from penstock.errors import LogFormatError, RecoveryMismatchError

from .conftest import offsets_of

pytestmark = pytest.mark.slow

SOURCES = 2


def read_offsets(location: CheckpointLocation) -> object:
    entry = location.offsets.require(12)
    location.offsets.check_sources(12, entry, SOURCES)
    return entry


def read_commit(location: CheckpointLocation) -> object:
    return location.commits.get(12)


def read_id(location: CheckpointLocation) -> object:
    return location.read_id()


READERS: dict[str, Callable[[CheckpointLocation], object]] = {
    "offsets/12": read_offsets,
    "commits/12": read_commit,
    "metadata": read_id,
}


@pytest.fixture
def location(tmp_path: Path) -> CheckpointLocation:
    location = CheckpointLocation(tmp_path / "location")
    with location:
        for batch_id in range(13):
            location.plan(batch_id, offsets_of(batch_id, SOURCES))
        location.commit(12, next_batch_watermark_ms=1_600_000_000_000)
    return location


def damages(data: bytes) -> Iterator[bytes]:
    yield from (data[:length] for length in range(len(data)))
    for index in range(len(data)):
        for mask in (*(1 << bit for bit in range(8)), 0xFF):
            yield data[:index] + bytes([data[index] ^ mask]) + data[index + 1 :]


def sidecar_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


@pytest.mark.parametrize("name", READERS)
def test_damage_is_found_and_named(location: CheckpointLocation, tmp_path: Path, name: str) -> None:
    path = tmp_path / "location" / name
    for damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(LogFormatError) as caught:
            READERS[name](location)
        assert caught.value.path == f"file://{path}"
        assert caught.value.hint


@pytest.mark.parametrize("name", READERS)
def test_damage_of_a_checksum_gives_the_entry_or_an_error(
    location: CheckpointLocation, tmp_path: Path, name: str
) -> None:
    expected = READERS[name](location)
    sidecar = sidecar_of(tmp_path / "location" / name)
    unchecked = 0
    for damaged in damages(sidecar.read_bytes()):
        sidecar.write_bytes(damaged)
        try:
            assert READERS[name](location) == expected
            unchecked += 1
        except LogFormatError as error:
            assert str(sidecar) in str(error.hint)  # noqa: PT017
    assert unchecked == 1  # cut to nothing, as by a power cut


@pytest.mark.parametrize("name", READERS)
def test_what_the_format_alone_finds(
    location: CheckpointLocation, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "location" / name
    sidecar_of(path).unlink()
    data = path.read_bytes()
    for damaged in damages(data):
        path.write_bytes(damaged)
        try:
            READERS[name](location)
        except (LogFormatError, RecoveryMismatchError) as error:
            assert error.path == f"file://{path}"  # noqa: PT017
        else:
            check_undetectable(data, damaged)


def check_undetectable(data: bytes, damaged: bytes) -> None:
    """A digit or a letter within a value is another one; nothing else passes, and no cut does."""
    assert len(damaged) == len(data)
    changed = [index for index in range(len(data)) if data[index] != damaged[index]]
    assert len(changed) == 1
    assert text_of_values(data)[changed[0]], damaged


def text_of_values(data: bytes) -> list[bool]:
    """Return for each byte whether it is within a string or a number that is a value or a name.

    Names of the format itself do not count: they are checked.
    """
    fixed = (b"batchWatermarkMs", b"batchTimestampMs", b"conf", b"nextBatchWatermarkMs", b"id")
    free = [chr(byte).isalnum() or byte in b"._-" for byte in data]
    free[:2] = [False, False]
    for name in fixed:
        start = data.find(b'"' + name + b'":')
        if start >= 0:
            free[start : start + len(name) + 2] = [False] * (len(name) + 2)
    return free


def test_a_missing_file_is_named(location: CheckpointLocation, tmp_path: Path) -> None:
    checks: list[tuple[str, Callable[[], Any]]] = [
        ("offsets/5", location.recover),
        ("metadata", location.read_id),
        ("metadata", location.acquire),
    ]
    for name, read in checks:
        path = tmp_path / "location" / name
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(Exception, match=name):
            read()
        path.write_bytes(content)
    assert location.recover().next_batch_id == 13
