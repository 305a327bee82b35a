"""Streams of pickles: to read one runs the code that its writer chose."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.journal import JournalStream, JournalWriter, RecordFormat, read_records
from penstock.journal.layout import stream_info_path
from penstock.journal.retention.registration import register_consumer
from penstock.model import OffsetRange
from penstock.storage import Storage, open_storage
from tests.journal.helpers import write_blocks

ALL = [OffsetRange("r0-00000000", 0, 1)]


class Harmful:
    """Leaves a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self._marker),))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "journal")


def swap_kind(storage: Storage, kind: str) -> None:
    """Change what a stream's description says, as whoever can write the journal may."""
    path = stream_info_path("clicks")
    info = json.loads(storage.read(path))
    info["schema"]["kind"] = kind
    storage.create(path, json.dumps(info).encode(), overwrite=True)


def test_a_kind_that_was_swapped_runs_nothing(storage: Storage, tmp_path: Path) -> None:
    stream = JournalStream.create(storage, "clicks", RecordFormat("binary"))
    write_blocks(stream, [[pickle.dumps(Harmful(tmp_path / "ran"))]])
    swap_kind(storage, "pickle")

    with pytest.raises(ConfigError, match="allow_pickle=True"):
        list(read_records(JournalStream.open(storage, "clicks"), ALL))

    assert not (tmp_path / "ran").exists()


def test_pickles_are_read_where_they_are_asked_for(storage: Storage) -> None:
    write_blocks(JournalStream.create(storage, "clicks", RecordFormat("pickle")), [[(1, {2})]])

    stream = JournalStream.open(storage, "clicks", allow_pickle=True)

    assert list(read_records(stream, ALL)) == [(1, {2})]
    assert list(read_records(pickle.loads(pickle.dumps(stream)), ALL)) == [(1, {2})]


@pytest.mark.parametrize("exposed", ["", "clicks"])
def test_a_journal_that_others_can_write_gives_no_pickles(
    storage: Storage, tmp_path: Path, exposed: str
) -> None:
    write_blocks(JournalStream.create(storage, "clicks", RecordFormat("pickle")), [["x"]])
    (tmp_path / "journal" / exposed).chmod(0o777)

    with pytest.raises(ConfigError, match="may be written by others"):
        JournalStream.open(storage, "clicks", allow_pickle=True)
    with pytest.raises(ConfigError, match="may be written by others"):
        JournalStream.create(storage, "clicks", RecordFormat("pickle"))


def test_a_block_that_others_could_have_written_is_not_unpickled(
    storage: Storage, tmp_path: Path
) -> None:
    stream = JournalStream.create(storage, "clicks", RecordFormat("pickle"))
    write_blocks(stream, [[Harmful(tmp_path / "ran")]])
    (block,) = (tmp_path / "journal").glob("clicks/r0-*/*0000.parquet")
    block.chmod(0o666)

    with pytest.raises(ConfigError, match="may be written by others"):
        list(read_records(stream, ALL))

    assert not (tmp_path / "ran").exists()


def test_pickles_are_their_users_alone_under_any_umask(storage: Storage, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writer = JournalWriter(
            JournalStream.create(storage, "clicks", RecordFormat("pickle")), "r0"
        )
        writer.append({"a": 1})
        writer.close()
    finally:
        os.umask(before)
    paths = [tmp_path / "journal" / "clicks", *(tmp_path / "journal" / "clicks").rglob("*")]
    assert [path for path in paths if path.stat().st_mode & 0o077] == []


def test_a_consumer_does_not_go_on_with_another_kind(storage: Storage) -> None:
    stream = JournalStream.create(storage, "clicks", RecordFormat("binary"))
    register_consumer(stream, "job", "me").commit({})
    swap_kind(storage, "string")

    with pytest.raises(ConfigError, match="registered for records of kind binary"):
        register_consumer(JournalStream.open(storage, "clicks"), "job", "me", begun=True)
