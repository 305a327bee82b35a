"""The protocol of a checkpoint path: what is in its files after which step."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.batched.checkpoints import Checkpoints, note_read
from penstock.errors import (
    ConcurrentDriverError,
    ConfigError,
    LogFormatError,
    StorageError,
    UnsharedPathError,
)
from penstock.kafka import KafkaRange
from penstock.storage import Storage, open_storage


@contextmanager
def opened(path: Path | str, *topics: str, keep: int = 100) -> Iterator[Checkpoints]:
    checkpoints = Checkpoints(path, keep)
    ends = checkpoints.open(topics)
    for topic in topics:
        if topic not in ends:
            checkpoints.begin_topic(topic, {})
    try:
        yield checkpoints
    finally:
        checkpoints.close()


def read(path: Path | str, *ranges: KafkaRange) -> None:
    for each in ranges:
        note_read(open_storage(path), each.topic, each.partition, each.end_offset)


def run(checkpoints: Checkpoints, *ranges: KafkaRange) -> None:
    """A batch, from its plan to its checkpoint."""
    checkpoints.begin(ranges)
    read(checkpoints.url, *ranges)
    checkpoints.finish(ranges)


def newest(path: Path, topic: str) -> Any:
    names = [int(each.stem) for each in (path / topic).glob("*.txt")]
    return json.loads((path / topic / f"{max(names)}.txt").read_text())


def names(path: Path) -> set[str]:
    files = (str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())
    return {name for name in files if name != "driver.lock"}


def a(start: int, end: int, partition: int = 0) -> KafkaRange:
    return KafkaRange("a", partition, start, end)


def b(start: int, end: int, partition: int = 0) -> KafkaRange:
    return KafkaRange("b", partition, start, end)


def test_the_files_are_those_of_the_proposal(tmp_path: Path) -> None:
    with opened(tmp_path, "topic1", "topic2") as checkpoints:
        ranges = [
            KafkaRange("topic1", 1, 0, 6),
            KafkaRange("topic1", 2, 0, 5),
            KafkaRange("topic2", 1, 0, 1),
        ]
        checkpoints.begin(ranges)
        read(tmp_path, *ranges)
        assert names(tmp_path) == {
            "dirty_bit",
            "write-ahead-logs/topic1/1.txt",
            "write-ahead-logs/topic1/2.txt",
            "write-ahead-logs/topic2/1.txt",
            "topic1/0.txt",
            "topic2/0.txt",
        }
        assert (tmp_path / "write-ahead-logs/topic1/1.txt").read_text() == "5"
        checkpoints.finish(ranges)
        run(checkpoints, KafkaRange("topic1", 1, 6, 8))
    assert names(tmp_path) == {
        "write-ahead-logs/topic1/1.txt",
        "write-ahead-logs/topic1/2.txt",
        "write-ahead-logs/topic2/1.txt",
        "topic1/1.txt",
        "topic1/2.txt",
        "topic2/1.txt",
    }
    assert (tmp_path / "topic1/1.txt").read_text() == '{"1": 5, "2": 4}'
    assert (tmp_path / "topic1/2.txt").read_text() == '{"1": 7, "2": 4}'  # 2 keeps its own


def test_a_restart_begins_after_the_newest_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path, "a", "b") as checkpoints:
        run(checkpoints, a(0, 6), a(0, 3, 1))
        run(checkpoints, a(6, 9), b(0, 1))
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.open(["a", "b", "new"]) == {"a": {0: 9, 1: 3}, "b": {0: 1}}
    checkpoints.close()


def test_a_batch_has_one_checkpoint_however_many_partitions_report(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        ranges = [a(0, 2, partition) for partition in range(50)]
        checkpoints.begin(ranges)
        read(tmp_path, *ranges)
        for each in ranges:
            assert "a/1.txt" not in names(tmp_path)
            checkpoints.finish([each])
    assert {name for name in names(tmp_path) if name.startswith("a/")} == {"a/1.txt"}
    assert newest(tmp_path, "a") == {str(p): 1 for p in range(50)}
    assert not (tmp_path / "dirty_bit").exists()


def test_without_a_dirty_bit_there_is_no_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        checkpoints.begin([a(0, 2)])
        with pytest.raises(UnsharedPathError):
            checkpoints.finish([a(0, 2)])  # nothing has read it
    assert "a/1.txt" not in names(tmp_path)


def test_what_no_log_says_was_read_is_in_no_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        checkpoints.begin([a(0, 2), a(0, 2, 1)])
        read(tmp_path, a(0, 2))
        checkpoints.finish([a(0, 2), a(0, 2, 1)])
    assert newest(tmp_path, "a") == {"0": 1}


def test_a_checkpoint_never_passes_a_batch_in_flight(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        first, second, third = [a(0, 2), a(0, 5, 1)], [a(2, 4)], [a(5, 6, 1)]
        for batch in (first, second, third):
            checkpoints.begin(batch)
            read(tmp_path, *batch)  # the logs are ahead of what is done
        checkpoints.finish(second)
        assert names(tmp_path) >= {"dirty_bit", "a/0.txt"}
        assert not (tmp_path / "a/1.txt").exists()
        checkpoints.finish(first)
        assert newest(tmp_path, "a") == {"0": 3, "1": 4}
        assert (tmp_path / "dirty_bit").exists()  # the third is still to be checkpointed
        checkpoints.finish(third)
        assert newest(tmp_path, "a") == {"0": 3, "1": 5}
        assert not (tmp_path / "dirty_bit").exists()


def test_tasks_that_read_at_once_may_end_in_any_order(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        first, second = a(0, 5), a(5, 9)
        for each in (first, second):
            checkpoints.begin([each])
        read(tmp_path, second, first)
        for each in (first, second):
            checkpoints.finish([each])
        assert newest(tmp_path, "a") == {"0": 8}


def test_the_newest_hundred_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        for n in range(100):
            run(checkpoints, a(n, n + 1))
        assert (tmp_path / "a/1.txt").exists()
        run(checkpoints, a(100, 101))
    kept = {f"{n}.txt" for n in range(2, 102)}
    assert {each.name for each in (tmp_path / "a").iterdir()} == kept
    with opened(tmp_path, "a", keep=3):  # a smaller number counts from the next start
        assert {each.name for each in (tmp_path / "a").iterdir()} == {
            "99.txt",
            "100.txt",
            "101.txt",
        }


def test_the_only_sound_checkpoint_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        run(checkpoints, a(0, 2))
    (tmp_path / "a/2.txt").touch()
    (tmp_path / "a/3.txt").mkdir()
    for _ in range(2):
        with opened(tmp_path, "a", keep=1):
            assert json.loads((tmp_path / "a/1.txt").read_text()) == {"0": 1}
    with opened(tmp_path, "a", keep=1) as checkpoints:
        run(checkpoints, a(2, 4))
    assert (tmp_path / "a/4.txt").exists()


def test_where_the_first_batch_begins_is_kept_until_it_is_done(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.open(["a"]) == {}
    checkpoints.begin_topic("a", {0: 7, 1: 0})  # "latest", say
    checkpoints.close()  # before any batch
    with opened(tmp_path, "a"):
        assert newest(tmp_path, "a") == {"0": 6, "1": -1}
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.open(["a"]) == {"a": {0: 7, 1: 0}}
    checkpoints.close()


def test_a_partition_that_came_while_it_ran_is_in_the_next_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path, "a", "b") as checkpoints:
        checkpoints.begin([a(0, 2)], {"a": {1: 0, 2: 7}, "b": {1: 0}})
        read(tmp_path, a(0, 2))
        checkpoints.finish([a(0, 2)])
        assert newest(tmp_path, "a") == {"0": 1, "1": -1, "2": 6}
        run(checkpoints, a(7, 9, 2))
        assert newest(tmp_path, "a") == {"0": 1, "1": -1, "2": 8}
        run(checkpoints, b(0, 1))
        assert newest(tmp_path, "b") == {"0": 0, "1": -1}


def test_what_stands_in_the_place_of_files(tmp_path: Path) -> None:
    """Neither folders with the names of checkpoints nor links wedge a program."""
    logs = tmp_path / "logs-of-others"
    logs.mkdir()
    (tmp_path / "path/a").mkdir(parents=True)
    (tmp_path / "path/write-ahead-logs").symlink_to(logs)
    with opened(tmp_path / "path", "a") as checkpoints:
        run(checkpoints, a(0, 2))
        (tmp_path / "path/a/7.txt").mkdir()
    for end in (3, 4):
        with opened(tmp_path / "path", "a") as checkpoints:
            run(checkpoints, a(end - 1, end))
    assert (tmp_path / "path/a/9.txt").read_text() == '{"0": 3}'


def test_what_is_no_file_in_the_place_of_the_next_checkpoint(tmp_path: Path) -> None:
    """It is named, although there is no other program."""
    with opened(tmp_path, "a") as checkpoints:
        run(checkpoints, a(0, 2))
    pipe, link = tmp_path / "a/2.txt", tmp_path / "a/3.txt"
    os.mkfifo(pipe)
    link.symlink_to("nowhere")
    for place, end in ((pipe, 3), (link, 4)):
        in_the_way = pytest.raises(
            ConcurrentDriverError, match=rf"a/{place.name} .*no other one, remove .* no file"
        )
        with opened(tmp_path, "a") as checkpoints, in_the_way:
            run(checkpoints, a(end - 1, end))
        place.unlink()
        with opened(tmp_path, "a") as checkpoints:
            run(checkpoints, a(end - 1, end))
    assert newest(tmp_path, "a") == {"0": 3}


# -- an earlier run


class AsInTheText:
    """``add_checkpoint`` as the proposal has it: all that is in the logs, at the first sink."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add_checkpoint(self) -> None:
        if not (self.path / "dirty_bit").exists():
            return
        (self.path / "dirty_bit").unlink()
        for topic in (self.path / "write-ahead-logs").iterdir():
            logs = {log.stem: int(log.read_text()) for log in topic.iterdir()}
            number = 1 + len(list((self.path / topic.name).glob("*.txt")))
            (self.path / topic.name / f"{number}.txt").write_text(json.dumps(logs))


def killed_after_reading(path: Path) -> None:
    """Leave what a run leaves that read partition 1 and did not process it."""
    with opened(path, "a") as checkpoints:
        run(checkpoints, a(0, 2), a(0, 2, 1))
        checkpoints.begin([a(2, 9, 1)])
        read(path, a(2, 9, 1))


def test_logs_of_an_earlier_run_lose_records_as_in_the_text(tmp_path: Path) -> None:
    killed_after_reading(tmp_path)
    read(tmp_path, a(2, 3))  # the next run reads partition 0, and processes it
    AsInTheText(tmp_path).add_checkpoint()
    assert newest(tmp_path, "a") == {"0": 2, "1": 8}  # 2 to 8 of partition 1: never processed


def test_logs_of_an_earlier_run_are_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed_after_reading(tmp_path)
    with caplog.at_level(logging.WARNING), opened(tmp_path, "a") as checkpoints:
        assert names(tmp_path) == {"a/1.txt"}
        run(checkpoints, a(2, 3))
    assert newest(tmp_path, "a") == {"0": 2, "1": 1}
    assert "read records that no checkpoint has; they are read again" in caplog.text


def test_a_log_that_an_earlier_run_writes_late_moves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as checkpoints:
        checkpoints.begin([a(0, 2)])
        read(tmp_path, a(0, 2), a(0, 50), a(0, 50, 1))
        checkpoints.finish([a(0, 2)])
        assert newest(tmp_path, "a") == {"0": 1}
        checkpoints.begin([a(2, 4)])
        read(tmp_path, a(2, 4), a(0, 1))
        checkpoints.finish([a(2, 4)])
        assert newest(tmp_path, "a") == {"0": 3}


# -- files that are wrong


@pytest.mark.parametrize("wrong", [b"", b'{"0": 5', b"\0" * 20, b'{"v": 2}'])
def test_the_newest_sound_checkpoint_is_used_and_the_others_named(
    tmp_path: Path, wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, "a") as checkpoints:
        run(checkpoints, a(0, 2))
        run(checkpoints, a(2, 4))
    (tmp_path / "a/3.txt").write_bytes(wrong)
    (tmp_path / "a/notes").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        checkpoints = Checkpoints(tmp_path)
        assert checkpoints.open(["a"]) == {"a": {0: 4}}
    assert "continues after checkpoint 2" in caplog.text
    assert "a/3.txt: " in caplog.text
    assert "a/notes: no checkpoint" in caplog.text
    run(checkpoints, a(4, 5))
    assert (tmp_path / "a/4.txt").read_text() == '{"0": 4}'  # numbers are not used again
    checkpoints.close()


@pytest.mark.parametrize("files", [{"1.txt": b""}, {"notes": b""}, {"1.txt": b"{", "2.txt": b""}])
def test_no_sound_checkpoint_is_no_start(tmp_path: Path, files: dict[str, bytes]) -> None:
    (tmp_path / "a").mkdir()
    for name, data in files.items():
        (tmp_path / "a" / name).write_bytes(data)
    with pytest.raises(LogFormatError, match="none of them is a sound checkpoint") as caught:
        Checkpoints(tmp_path).open(["a"])
    assert all(f"a/{name}" in str(caught.value) for name in files)
    with opened(tmp_path, "b"):  # the lock is free
        pass


# -- two programs


def test_a_second_program_is_refused(tmp_path: Path) -> None:
    with (
        opened(tmp_path, "a"),
        pytest.raises(ConcurrentDriverError, match="another driver uses"),
    ):
        Checkpoints(tmp_path).open(["b"])


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    """A store without locks."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/path"
    return f"{request.getfixturevalue('s3_bucket')}/{uuid.uuid4().hex}"


def test_on_a_store_without_locks_the_slower_program_is_refused(url: str) -> None:
    one, other = Checkpoints(url), Checkpoints(url)
    one.open(["a"])
    one.begin_topic("a", {})
    other.open(["a"])
    run(one, a(0, 2))
    other.begin([a(0, 2)])
    read(url, a(0, 2))
    with pytest.raises(ConcurrentDriverError, match=r"a/1\.txt or a later one"):
        other.finish([a(0, 2)])
    run(one, a(2, 4))


def test_tasks_that_write_to_another_store_end_the_program(url: str) -> None:
    """A driver with other endpoints, say: no checkpoint would ever be made, without a word."""
    program, other = Checkpoints(url), Checkpoints(url)
    program.open(["a"])
    program.begin_topic("a", {})
    program.begin([a(0, 2)])
    with pytest.raises(UnsharedPathError, match="do not see the driver's files"):
        program.finish([a(0, 2)])
    read(url, a(0, 2))
    program.finish([a(0, 2)])
    program.begin([a(2, 4)])
    read(url, a(2, 4))
    other.open([])  # and it removes what the tasks have noted
    with pytest.raises(UnsharedPathError):
        program.finish([a(2, 4)])


def test_a_program_that_wakes_up_after_its_number_was_purged_is_refused(url: str) -> None:
    slow = Checkpoints(url)
    slow.open(["a"])
    slow.begin_topic("a", {})
    slow.begin([a(0, 2)])
    read(url, a(0, 2))
    with opened(url, "a", keep=1) as checkpoints:
        for n in range(3):
            run(checkpoints, a(n, n + 1))
        read(url, a(0, 2))
        with pytest.raises(ConcurrentDriverError):
            slow.finish([a(0, 2)])
    again = Checkpoints(url)
    assert again.open(["a"]) == {"a": {0: 3}}


# -- failures


class Refusing:
    """A storage that cannot create files whose path contains a text."""

    def __init__(self, inner: Storage, what: str) -> None:
        self.inner = inner
        self.what = what

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create(self, path: str, data: Any, *, overwrite: bool = False) -> None:
        if self.what in path:
            raise StorageError("the disk is full", path=path)
        self.inner.create(path, data, overwrite=overwrite)


def test_a_checkpoint_that_cannot_be_written_keeps_the_dirty_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, "a", "b") as checkpoints:
        run(checkpoints, a(0, 2), b(0, 2))
        with monkeypatch.context() as patched:
            patched.setattr(checkpoints, "_storage", Refusing(checkpoints._storage, "b/2.txt"))
            with pytest.raises(StorageError):
                run(checkpoints, a(2, 3), b(2, 3))
        assert (tmp_path / "dirty_bit").exists()
    with opened(tmp_path, "a", "b"):  # the topics continue after their own files
        assert (newest(tmp_path, "a"), newest(tmp_path, "b")) == ({"0": 2}, {"0": 1})


def test_keeping_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="0 checkpoints cannot be kept"):
        Checkpoints(tmp_path, 0)
