"""Checksum files: Hadoop's format, and never a good file that cannot be read."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from penstock.checkpoint import CommitLog, CommitMetadata, OffsetLog, OffsetSeq
from penstock.errors import AlreadyExistsError, LogFormatError, StorageError
from penstock.storage import Storage, open_storage
from penstock.storage.local import LocalStorage
from tests.storage.faulty_storage import FaultyStorage

from .conftest import offsets_of

FILE, SIDECAR = "location/offsets/0", "location/offsets/.0.crc"


@pytest.fixture
def log(local_storage: Storage) -> OffsetLog:
    return OffsetLog(local_storage)


def long_offsets() -> OffsetSeq:
    return OffsetSeq(batch_timestamp_ms=1, sources=tuple(f'"{i}{"x" * 300}"' for i in range(5)))


def test_a_checksum_file_is_as_hadoop_writes_it(log: OffsetLog, tmp_path: Path) -> None:
    log.add(0, long_offsets())
    data = (tmp_path / FILE).read_bytes()
    assert len(data) > 1024
    sums = [zlib.crc32(data[start : start + 512]) for start in range(0, len(data), 512)]
    expected = b"crc\0" + struct.pack(">i", 512) + struct.pack(f">{len(sums)}I", *sums)
    assert (tmp_path / SIDECAR).read_bytes() == expected


def test_stores_of_other_kinds_get_none() -> None:
    storage = open_storage("memory://without-checksums")
    OffsetLog(storage).add(0, offsets_of(0))
    assert [entry.name for entry in storage.list("offsets")] == ["0"]


@pytest.mark.parametrize("left", [None, b"", bytes(12), bytes(5)])
def test_what_a_power_cut_leaves_of_it_does_not_matter(
    log: OffsetLog, tmp_path: Path, left: bytes | None
) -> None:
    log.add(0, offsets_of(0))
    (tmp_path / SIDECAR).unlink()
    if left is not None:
        (tmp_path / SIDECAR).write_bytes(left)
    assert log.get(0) == offsets_of(0)


def test_an_altered_file_names_both(log: OffsetLog, tmp_path: Path) -> None:
    log.add(0, offsets_of(1))
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes().replace(b"10", b"20"))
    with pytest.raises(LogFormatError, match="does not match its checksum") as caught:
        log.get(0)
    assert caught.value.path == f"file://{path}"
    assert str(tmp_path / SIDECAR) in str(caught.value.hint)
    (tmp_path / SIDECAR).unlink()  # what the hint says for a file edited by hand
    assert log.get(0) is not None


def test_a_file_that_is_there_keeps_its_checksum(log: OffsetLog, tmp_path: Path) -> None:
    log.add(0, offsets_of(0))
    before = (tmp_path / SIDECAR).read_bytes()
    log.add(0, offsets_of(0))
    assert (tmp_path / SIDECAR).read_bytes() == before


def test_a_stale_checksum_is_gone_before_the_file_is_there(tmp_path: Path) -> None:
    """A driver that dies between file and checksum must not leave the checksum of another file."""
    local = open_storage(tmp_path / "location")
    OffsetLog(local).add(0, offsets_of(0))
    (tmp_path / FILE).unlink()  # by hand, forgetting the hidden file
    faulty = FaultyStorage(local)
    faulty.fail("create", after=True)
    with pytest.raises(StorageError):
        OffsetLog(faulty).add(0, offsets_of(1))
    assert OffsetLog(local).get(0) == offsets_of(1)


def test_the_driver_that_loses_writes_no_checksum(tmp_path: Path) -> None:
    """The winner's file appears after the loser has looked, and just before its own create."""
    local = open_storage(tmp_path / "location")
    faulty = FaultyStorage(
        local,
        before=lambda operation: (
            OffsetLog(local).add(0, offsets_of(1)) if operation.kind == "create" else None
        ),
    )
    with pytest.raises(Exception, match="different content") as caught:
        OffsetLog(faulty).add(0, offsets_of(2))
    assert isinstance(caught.value.__cause__, AlreadyExistsError)
    assert OffsetLog(local).get(0) == offsets_of(1)


def test_no_checksum_is_left_after_a_purge(local_storage: Storage, tmp_path: Path) -> None:
    log = CommitLog(local_storage)
    for batch_id in range(3):
        log.add(batch_id, CommitMetadata())
    log.purge(2)
    assert sorted(os.listdir(tmp_path / "location/commits")) == [".2.crc", "2"]


def test_a_checksum_that_cannot_be_written_is_no_error(
    log: OffsetLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / SIDECAR).mkdir(parents=True)
    log.add(0, offsets_of(0))
    assert "read unchecked" in caplog.text
    shutil.rmtree(tmp_path / SIDECAR)
    assert log.get(0) == offsets_of(0)


def test_a_link_in_the_place_of_a_checksum_is_not_followed(
    log: OffsetLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    create = LocalStorage.create

    def create_and_plant(storage: LocalStorage, path: str, data: bytes, **options: bool) -> None:
        create(storage, path, data, **options)
        (tmp_path / SIDECAR).symlink_to(victim)

    monkeypatch.setattr(LocalStorage, "create", create_and_plant)
    log.add(0, offsets_of(0))

    assert victim.read_text() == "precious"
    assert log.get(0) == offsets_of(0)
