"""A disk that fills up, or turns read-only, while a file is followed into the journal on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.journal import CommitPolicy, JournalStream, RecordFormat
from penstock.receivers import ReceiverSettings, TailReceiver, read_status
from penstock.storage import open_storage
from tests.journal.helpers import read_all
from tests.mounts import mount, small_disk
from tests.receivers.supervised import commanded
from tests.waiting import eventually

pytestmark = pytest.mark.slow

SETTINGS = ReceiverSettings(CommitPolicy(block_interval_ms=20), restart_delay_ms=50, poll_ms=20)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "1m") as place:
        yield place


@contextmanager
def following(log: Path, disk: Path) -> Iterator[JournalStream]:
    """Follow a log into a journal on the disk, by the supervisor that also runs in executors."""
    stream = JournalStream.create(open_storage(disk / "journal"), "log", RecordFormat("string"))
    with commanded(stream, TailReceiver(str(log)), settings=SETTINGS) as raised:
        yield stream
    assert not raised, raised


def errors(stream: JournalStream) -> int:
    status = read_status(stream, "r0")
    return 0 if status is None else status.errors


def append(log: Path, first: int, count: int) -> list[str]:
    lines = [f"line {n} {'x' * 90}" for n in range(first, first + count)]
    with log.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return lines


def test_receiving_resumes_when_there_is_room_again(tmp_path: Path, disk: Path) -> None:
    log = tmp_path / "app.log"
    lines = append(log, 0, 100)
    with following(log, disk) as stream:
        assert eventually(lambda: len(read_all(stream)) == 100)
        filler = disk / "filler"
        room = 64 << 10  # for control files, not for the block that comes
        filler.write_bytes(bytes(_free(disk) - room))
        lines += append(log, 100, 2000)
        assert eventually(lambda: errors(stream) > 0), "the full disk went unnoticed"
        assert read_all(stream) == lines[:100]
        filler.unlink()
        assert eventually(lambda: len(read_all(stream)) == 2100)
    assert read_all(stream) == lines


def test_receiving_resumes_when_the_disk_can_be_written_again(tmp_path: Path, disk: Path) -> None:
    log = tmp_path / "app.log"
    lines = append(log, 0, 100)
    with following(log, disk) as stream:
        assert eventually(lambda: len(read_all(stream)) == 100)
        assert not mount("-o", "remount,ro", str(disk))
        lines += append(log, 100, 100)
        # Nothing can be written, so nothing can be reported: the journal must just stay as it is.
        assert not eventually(lambda: len(read_all(stream)) != 100, within_s=0.5)
        assert not mount("-o", "remount,rw", str(disk))
        assert eventually(lambda: len(read_all(stream)) == 200)
    assert read_all(stream) == lines


def _free(disk: Path) -> int:
    state = os.statvfs(disk)
    return state.f_bavail * state.f_frsize
