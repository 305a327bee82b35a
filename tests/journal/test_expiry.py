"""Consumers that do not commit for long are expired, and none of them loses a record unnoticed."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, ConsumerExpiredError, StorageError
from penstock.journal import (
    JournalStream,
    RecordFormat,
    commit_consumer,
    consumers,
    remove_consumer,
    retire,
)
from penstock.journal.retention.consumer_files import (
    expired_consumers,
    read_consumer,
    write_consumer,
)
from penstock.journal.retention.expiry import expire
from penstock.journal.retention.registration import register_consumer
from penstock.journal.source import JournalSource
from penstock.storage import open_storage, remote
from tests.journal.helpers import memory_stream, write_blocks
from tests.storage.faulty_storage import FaultyStorage, Operation

ANY_AGE = -1
DAY_MS = 24 * 3600 * 1000


class Reader:
    """A program that reads a stream as a consumer."""

    def __init__(self, stream: JournalStream, name: str) -> None:
        consumer = register_consumer(stream, name, name, location=f"file:///{name}", begun=True)
        self.source = JournalSource(consumer)
        self.end: dict[str, int] = {}

    def take(self) -> None:
        """Commit all that is there."""
        end = self.source.latest(self.end)
        self.source.commit(self.end, end)
        self.end = end


@pytest.fixture
def stream() -> JournalStream:
    return memory_stream()


@pytest.fixture
def local_stream(tmp_path: Path) -> JournalStream:
    """One whose storage tells when blocks were written."""
    return JournalStream.create(open_storage(tmp_path), "s", RecordFormat("string"))


def aged(stream: JournalStream, name: str, age_ms: int) -> None:
    """Let a consumer's last commit be so long ago."""
    entry = read_consumer(stream, name)
    assert entry is not None
    assert entry.program is not None
    assert entry.program.committed_ms is not None
    program = replace(entry.program, committed_ms=entry.program.committed_ms - age_ms)
    write_consumer(stream, name, replace(entry, program=program))


def age_blocks(stream: JournalStream, age_ms: int) -> None:
    """Let the blocks that are there be written so long ago."""
    for path in Path(stream.storage.url.removeprefix("file://")).rglob("*.parquet"):
        written_s = path.stat().st_mtime - age_ms / 1000
        os.utime(path, (written_s, written_s))


def test_only_what_is_older_than_was_chosen_expires(local_stream: JournalStream) -> None:
    write_blocks(local_stream, [["a"], ["b"]])
    for name in ("old", "young"):
        Reader(local_stream, name).take()
    Reader(local_stream, "has-not-committed")
    commit_consumer(local_stream, "plain", {})
    write_blocks(local_stream, [["c"]])
    age_blocks(local_stream, 9 * DAY_MS)
    aged(local_stream, "old", 8 * DAY_MS)
    (found,) = expire(local_stream, 7 * DAY_MS, apply=False)
    assert (found.consumer, found.stream, found.idle_ms // DAY_MS) == (
        "old",
        local_stream.name,
        8,
    )
    assert "old" in consumers(local_stream)
    assert [each.consumer for each in expire(local_stream, 7 * DAY_MS)] == ["old"]
    assert sorted(consumers(local_stream)) == ["has-not-committed", "plain", "young"]
    assert expired_consumers(local_stream) == ["old"]
    assert expire(local_stream, 7 * DAY_MS) == []


def test_one_that_is_caught_up_stays_however_long_the_stream_is_quiet(
    local_stream: JournalStream,
) -> None:
    """Its program may run: nothing tells an idle one from one that has ended."""
    write_blocks(local_stream, [["a"], ["b"]], close=False)
    idle = Reader(local_stream, "idle")
    idle.take()
    age_blocks(local_stream, 400 * DAY_MS)
    aged(local_stream, "idle", 400 * DAY_MS)
    assert expire(local_stream, 7 * DAY_MS) == []
    write_blocks(local_stream, [["c"]], receiver="r1")  # it is about to take this
    assert expire(local_stream, 7 * DAY_MS) == []
    age_blocks(local_stream, 8 * DAY_MS)
    (found,) = expire(local_stream, 7 * DAY_MS, apply=False)
    assert (found.idle_ms // DAY_MS, found.waiting_ms // DAY_MS) == (400, 8)
    idle.take()
    aged(local_stream, "idle", 400 * DAY_MS)
    assert expire(local_stream, 7 * DAY_MS) == []
    write_blocks(local_stream, [["d"]], receiver="r1")
    age_blocks(local_stream, 8 * DAY_MS)
    assert [each.consumer for each in expire(local_stream, 7 * DAY_MS)] == ["idle"]


@pytest.mark.parametrize("tells", [True, False])
def test_one_that_is_caught_up_stays_on_a_store_that_tells_times_otherwise_or_none(
    stream: JournalStream, monkeypatch: pytest.MonkeyPatch, tells: bool
) -> None:
    """In memory a listing has seconds; some stores tell nothing."""
    if not tells:
        monkeypatch.setattr(remote, "_MODIFIED_KEYS", ())
    write_blocks(stream, [["a"]], close=False)
    Reader(stream, "idle").take()
    aged(stream, "idle", 400 * DAY_MS)
    assert expire(stream, 7 * DAY_MS) == []
    write_blocks(stream, [["c"]], receiver="r1")
    with nullcontext() if tells else pytest.raises(ConfigError, match="does not tell when"):
        assert expire(stream, 7 * DAY_MS) == []
    assert list(consumers(stream)) == ["idle"]


def test_an_expired_consumer_holds_nothing_back_and_is_refused_until_it_is_removed(
    stream: JournalStream,
) -> None:
    write_blocks(stream, [["a"]], close=False)
    Reader(stream, "away").take()
    write_blocks(stream, [["b"], ["c"]])
    commit_consumer(stream, "job", {"r0-00000001": 2})
    assert retire(stream) == 1  # the first one, which both have read
    expire(stream, ANY_AGE)
    assert retire(stream) == 2
    for _ in range(2):
        with pytest.raises(ConsumerExpiredError, match=f"consumers rm .* {stream.name} away"):
            Reader(stream, "away")
    remove_consumer(stream, "away")
    Reader(stream, "away")


def test_one_that_was_asleep_finds_out_and_ends(stream: JournalStream) -> None:
    """Two of everything alive: it commits once more after another has expired it."""
    write_blocks(stream, [["a"]], close=False)
    reader = Reader(stream, "asleep")
    reader.take()
    write_blocks(stream, [["b"]])
    expire(stream, ANY_AGE)
    with pytest.raises(ConsumerExpiredError, match="'asleep' was expired"):
        reader.take()
    with pytest.raises(ConsumerExpiredError):  # so its program plans no further batch
        reader.source.latest(reader.end)
    with pytest.raises(ConsumerExpiredError):
        Reader(stream, "asleep")


@pytest.mark.parametrize("step", range(16))
def test_one_that_commits_meanwhile_stays_or_finds_out(stream: JournalStream, step: int) -> None:
    """Whatever step of the expiry its commit comes before."""
    write_blocks(stream, [["a"]], close=False)
    reader = Reader(stream, "alive")
    reader.take()
    write_blocks(stream, [["b"]])
    errors: list[Exception] = []
    steps = iter(range(100))

    def commit(operation: Operation) -> None:
        if next(steps) == step:
            try:
                reader.take()
            except ConsumerExpiredError as error:
                errors.append(error)

    expire(over(stream, commit), ANY_AGE)
    if not expired_consumers(stream):
        assert "alive" in consumers(stream)
    elif not errors:
        with pytest.raises(ConsumerExpiredError):
            reader.take()


@pytest.mark.parametrize("step", range(12))
def test_a_crash_at_any_step_leaves_it_whole_or_refused(stream: JournalStream, step: int) -> None:
    write_blocks(stream, [["a"]], close=False)
    Reader(stream, "away").take()
    write_blocks(stream, [["b"]])
    steps = iter(range(100))

    def crash(operation: Operation) -> None:
        if next(steps) == step:
            raise StorageError("killed here", operation=operation.kind)

    try:
        expire(over(stream, crash), ANY_AGE)
    except StorageError:
        if "away" not in consumers(stream):
            assert expired_consumers(stream) == ["away"]
        expire(stream, ANY_AGE)
    assert consumers(stream) == {}
    with pytest.raises(ConsumerExpiredError):
        Reader(stream, "away")


def test_a_consumer_that_was_away_for_a_day_is_told_of_once(
    local_stream: JournalStream, caplog: pytest.LogCaptureFixture
) -> None:
    write_blocks(local_stream, [["a"]], close=False)
    here, away = Reader(local_stream, "here"), Reader(local_stream, "away")
    away.take()
    aged(local_stream, "away", DAY_MS)
    with caplog.at_level(logging.WARNING):
        here.take()
        assert caplog.messages == []  # it has read all that there is
        for records in (["b"], ["c"]):
            write_blocks(local_stream, [records])
            here.take()
            assert caplog.messages == []  # it may be about to take these
        age_blocks(local_stream, DAY_MS)
        later = Reader(local_stream, "later")  # a commit that looks again
        for records in (["d"], ["e"]):
            write_blocks(local_stream, [records])
            later.take()
    (told,) = caplog.messages
    assert "Consumer away of stream s last committed at " in told
    assert told.endswith(f"penstock journal consumers rm {local_stream.storage.url} s away")


def over(stream: JournalStream, before: Any) -> JournalStream:
    """Return the stream over a storage that calls a function before each operation."""
    return replace(stream, storage=FaultyStorage(stream.storage, before=before))
