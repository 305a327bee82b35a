"""TailReceiver on real files: growth, rotation, truncation, deletion, and what is reported."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, FencedError, ReceiverError
from penstock.receivers import TailReceiver
from penstock.receivers.tail import follower, scan
from penstock.receivers.tail.follow import FollowOptions, Mark, Sibling
from penstock.receivers.tail.follower import Follower
from penstock.receivers.tail.listing import siblings
from penstock.receivers.tail.positions import (
    MarkPositions,
    MarksByPath,
    position_from_marks,
)
from penstock.testing import RecordingHost
from tests.waiting import WAIT_S


def tail(*paths: Path | str, **options: Any) -> TailReceiver:
    return TailReceiver(list(paths), **{"poll_interval_ms": 5, **options})


def append(path: Path, *lines: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


def copytruncate(path: Path, copy: Path, then: str = "") -> None:
    """Copy and truncate a log, to which something may be written then, a clock's tick later."""
    written_ns = path.stat().st_mtime_ns
    shutil.copyfile(path, copy)
    path.write_text(then)
    copied_ns = max(written_ns, copy.stat().st_mtime_ns)
    later_ns = copied_ns + 4_000_000
    os.utime(copy, ns=(copied_ns, copied_ns))
    os.utime(path, ns=(later_ns, later_ns))


def run_until(
    receiver: TailReceiver, records: int, position: Any = None, **options: Any
) -> RecordingHost:
    """Run the receiver from a position until so many records are stored, then stop it."""
    host = RecordingHost(position, **options)
    with host.run(receiver):
        host.wait_for_records(records)
    return host


def fail(message: str, error: BaseException | None) -> None:
    raise AssertionError(message) from error


def marks_of(position: Any) -> list[Mark]:
    return MarkPositions(RecordingHost().own_files(), position, fail).marks()


def follow(path: Path, changes: MarksByPath | None = None) -> Follower:
    marks = None if changes is None else [mark for marks in changes.values() for mark in marks]
    options = FollowOptions((str(path),), True, rotate_wait_ms=5_000, max_line_bytes=1_000)
    return Follower(options, marks, fail)


def lines_of_a_round(follower: Follower) -> list[str]:
    return [line for batch in follower.read_round() for line in batch["value"].to_pylist()]


def inode_of(path: Path) -> int:
    return path.stat().st_ino


def offsets(position: Any) -> dict[str, int]:
    return {os.path.basename(mark.path): mark.offset for mark in marks_of(position)}


class TestGrowth:
    def test_reads_what_is_there_and_what_is_appended(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "one", "two")
        host = RecordingHost()
        with host.run(tail(log)):
            assert host.wait_for_records(2) == ["one", "two"]
            append(log, "three")
            assert host.wait_for_records(3) == ["one", "two", "three"]
        assert offsets(host.last_position()) == {"app.log": log.stat().st_size}

    def test_continues_after_the_stored_position(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "one")
        before = run_until(tail(log), 1)
        append(log, "two")
        position = json.loads(json.dumps(before.last_position()))
        assert run_until(tail(log), 1, position).records == ["two"]

    def test_from_the_end_skips_only_what_was_there_first(self, tmp_path: Path) -> None:
        log, late = tmp_path / "app.log", tmp_path / "late.log"
        log.write_text("old\nunder way, ")
        written = ["old"]
        host = RecordingHost()
        with host.run(tail(tmp_path / "*.log", from_beginning=False)):
            while not host.records:  # which of these comes after the first look is open
                append(log, f"line {len(written)}")
                written.append(f"line {len(written)}")
            append(late, "new file")
            host.wait_until(lambda: any("new file" in stored.records for stored in host.stores))
        written[1] = "under way, line 1"  # a line is never cut
        followed = [line for line in host.records if line != "new file"]
        assert "old" not in followed
        assert followed == written[-len(followed) :]
        position = host.last_position()
        after = tmp_path / "while-down.log"
        append(after, "read as a whole")
        resumed = run_until(tail(tmp_path / "*.log", from_beginning=False), 1, position)
        assert resumed.records == ["read as a whole"]

    def test_an_unfinished_line_waits_for_its_end(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        log.write_bytes(b"whole\nunfin")
        host = RecordingHost()
        with host.run(tail(log, rotate_wait_ms=0)):
            host.wait_for_records(1)
            for piece in (b"ish\xc3", b"\xa9d", b"\r"):
                with log.open("ab") as file:
                    file.write(piece)
            with log.open("ab") as file:
                file.write(b"\nnext\n")
            assert host.wait_for_records(3) == ["whole", "unfinishéd", "next"]

    def test_lines_and_characters_across_read_borders(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        long_line = "é" * 3_000_000  # 6 MB: longer than one read
        lines = ["x" * 999 + "😀" * 7] * 9_000 + [long_line, "end"]
        append(log, *lines)
        host = run_until(tail(log), len(lines))
        assert host.records == lines
        assert len(host.stores) > 2

    def test_a_file_that_appears_later_is_announced_and_followed(self, tmp_path: Path) -> None:
        log = tmp_path / "not" / "yet.log"
        host = RecordingHost(expect_errors=True)
        with host.run(tail(log)):
            host.wait_until(lambda: bool(host.errors))
            log.parent.mkdir()
            append(log, "here")
            assert host.wait_for_records(1) == ["here"]
        assert [report.message for report in host.errors] == [
            f"no file matches {log} yet; waiting for one"
        ]

    def test_a_busy_file_does_not_starve_the_others(self, tmp_path: Path) -> None:
        busy, quiet = tmp_path / "a-busy.log", tmp_path / "b-quiet.log"
        append(busy, *["x" * 999] * 40_000)
        append(quiet, "quiet")
        host = run_until(tail(busy, quiet), 40_001)
        assert any("quiet" in stored.records for stored in host.stores[:2])

    def test_many_files_each_line_once(self, tmp_path: Path) -> None:
        expected = set()
        for i in range(300):
            lines = [f"{i}-{j}" for j in range(i % 4)]
            append(tmp_path / f"{i}.log", *lines)
            expected |= set(lines)
        host = run_until(tail(tmp_path / "*.log"), len(expected))
        assert sorted(host.records) == sorted(expected)

    def test_a_path_that_looks_like_a_glob_is_a_path(self, tmp_path: Path) -> None:
        log = tmp_path / "app[1].log"
        append(log, "one")
        assert run_until(tail(log), 1).records == ["one"]

    def test_a_symlink_switched_to_another_file_is_a_rotation(self, tmp_path: Path) -> None:
        first, second, link = tmp_path / "1.log", tmp_path / "2.log", tmp_path / "current"
        append(first, "first")
        link.symlink_to(first)
        host = RecordingHost()
        with host.run(tail(link)):
            host.wait_for_records(1)
            append(first, "late")
            append(second, "second")
            (tmp_path / "next").symlink_to(second)
            (tmp_path / "next").rename(link)
            assert sorted(host.wait_for_records(3)) == ["first", "late", "second"]


class TestRotation:
    def test_by_rename_while_running(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "1")
        host = RecordingHost()
        with host.run(tail(log)):
            host.wait_for_records(1)
            append(log, "2")
            log.rename(tmp_path / "app.log.1")
            append(log, "3")
            host.wait_for_records(3)
            append(tmp_path / "app.log.1", "late writer")
            assert host.wait_for_records(4) == ["1", "2", "3", "late writer"]

    @pytest.mark.parametrize("times", [1, 2, 5])
    @pytest.mark.parametrize("name", ["app.log.{0}", "app.log-2024010{0}", "app-{0}.log"])
    def test_several_times_while_down(self, tmp_path: Path, times: int, name: str) -> None:
        log = tmp_path / "app.log"
        append(log, "stored")
        before = run_until(tail(log), 1)
        expected = []
        for i in range(times):
            append(log, f"old {i}", f"older {i}")
            log.rename(tmp_path / name.format(i))
            expected += [f"old {i}", f"older {i}"]
        append(log, "current")
        after = run_until(tail(log), len(expected) + 1, before.last_position())
        assert sorted(after.records) == sorted([*expected, "current"])
        assert after.records[:2] == ["old 0", "older 0"]
        assert after.records[-1] == "current"

    def test_a_file_moved_to_any_name_beside_is_found(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "stored")
        before = run_until(tail(log), 1)
        append(log, "rest")
        log.rename(tmp_path / "archive of monday")
        assert run_until(tail(log), 1, before.last_position(), expect_errors=True).records == [
            "rest"
        ]

    def test_rotated_names_that_match_the_glob_are_not_read_again(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "1")
        host = RecordingHost()
        with host.run(tail(tmp_path / "app.log*")):
            host.wait_for_records(1)
            for i in range(3):
                log.rename(tmp_path / f"app.log.{i}")
                append(log, f"new {i}")
                host.wait_for_records(i + 2)
        after = run_until(tail(tmp_path / "app.log*"), 0, host.last_position())
        assert after.records == []
        assert sorted(host.records) == ["1", "new 0", "new 1", "new 2"]

    def test_old_rotations_from_before_the_first_start_are_not_read(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(tmp_path / "app.log.1", "long ago")
        os.utime(tmp_path / "app.log.1", (1, 1))
        append(log, "1")
        host = RecordingHost()
        with host.run(tail(log)):
            host.wait_for_records(1)
            (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
            log.rename(tmp_path / "app.log.1")
            append(log, "2")
            assert host.wait_for_records(2) == ["1", "2"]

    def test_the_last_line_of_a_renamed_file_needs_no_end(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        log.write_text("whole\nlast")
        host = RecordingHost()
        with host.run(tail(log, rotate_wait_ms=20)):
            host.wait_for_records(1)
            log.rename(tmp_path / "app.log.1")
            assert host.wait_for_records(2) == ["whole", "last"]
        assert run_until(tail(log), 0, host.last_position(), expect_errors=True).records == []

    def test_the_position_stays_small(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        host = RecordingHost(expect_errors=True)
        with host.run(tail(log)):
            for i in range(30):
                append(log, f"{i}")
                host.wait_for_records(i + 1)
                os.utime(log, ns=(i, i * 10**9))  # tell the rotations apart on coarse clocks
                log.rename(tmp_path / f"app.log.{i}")
        assert host.records == [str(i) for i in range(30)]
        assert len(host.last_position()["files"]) <= 4
        assert len(json.dumps(host.last_position())) < 1000 + 4 * len(str(tmp_path))


class TestReplacement:
    def test_truncation_starts_again_at_0_and_says_so(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "one", "two")
        host = RecordingHost(expect_errors=True)
        with host.run(tail(log)):
            host.wait_for_records(2)
            log.write_text("new\n")
            assert host.wait_for_records(3) == ["one", "two", "new"]
        assert [report.message for report in host.errors] == [host.errors[0].message]
        assert "was truncated" in host.errors[0].message

    def test_a_longer_rewrite_is_recognised_by_its_first_bytes(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "first content")
        before = run_until(tail(log), 1)
        log.write_text("second content, which is longer\n")
        after = run_until(tail(log), 1, before.last_position(), expect_errors=True)
        assert after.records == ["second content, which is longer"]

    def test_a_longer_rewrite_is_recognised_behind_a_common_banner(self, tmp_path: Path) -> None:
        log, banner = tmp_path / "app.log", "=" * 1000
        append(log, banner, "first")
        before = run_until(tail(log), 2)
        log.write_text(f"{banner}\nother\nand more\n")
        after = run_until(tail(log), 3, before.last_position(), expect_errors=True)
        assert after.records == [banner, "other", "and more"]

    @pytest.mark.parametrize("times", [1, 3])
    def test_copytruncate_while_down_reads_the_rest_from_the_copies(
        self, tmp_path: Path, times: int
    ) -> None:
        log = tmp_path / "app.log"
        append(log, "stored")
        before = run_until(tail(log), 1)
        for i in range(times):
            append(log, f"unread {i}")
            copytruncate(log, tmp_path / f"app.log.{i}")
        append(log, "current")
        after = run_until(tail(log), times + 1, before.last_position())
        assert after.records == [*(f"unread {i}" for i in range(times)), "current"]

    def test_copytruncate_while_running(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "0")
        host = RecordingHost()
        with host.run(tail(log)):
            for i in range(3):
                host.wait_for_records(2 * i + 1)
                append(log, f"just before {i}")
                copytruncate(log, tmp_path / f"app.log.{i}")
                append(log, f"just after {i}")
                host.wait_for_records(2 * i + 3)
        assert len(host.records) == len(set(host.records)) == 7

    @pytest.mark.parametrize("after", ["", "after\n"])
    def test_a_truncation_that_a_read_sees_before_a_look_does(
        self, tmp_path: Path, after: str
    ) -> None:
        log = tmp_path / "app.log"
        append(log, "stored")
        running = follow(log)
        running.scan()
        assert lines_of_a_round(running) == ["stored"]
        append(log, "only in the copy")
        copytruncate(log, tmp_path / "app.log.1", then=after)
        assert lines_of_a_round(running) == []
        restarted = follow(log, running.changes())
        for each in (running, restarted):
            each.scan()
            lines = lines_of_a_round(each) + lines_of_a_round(each)
            assert lines == ["only in the copy", *after.split()]
            each.close()

    def test_copytruncate_in_the_middle_of_a_look(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = tmp_path / "app.log"
        append(log, "stored")
        before = run_until(tail(log), 1)
        for i in range(2):
            append(log, f"unread {i}")
            copytruncate(log, tmp_path / f"app.log.{i}")
        append(log, "current")
        host = run_until(tail(log), 3, before.last_position())
        killed_after_one = host.stores[0].position  # a file beside the log waits to be read from 0

        def list_and_rotate(*args: Any) -> list[Sibling]:
            listed = siblings(*args)
            rotated_only = "app.log" not in {sibling.name for sibling in listed}
            if rotated_only and not (tmp_path / "app.log.2").exists():
                append(log, "late")
                copytruncate(log, tmp_path / "app.log.2")
            return listed

        monkeypatch.setattr(scan, "siblings", list_and_rotate)
        assert run_until(tail(log), 3, killed_after_one).records == ["unread 1", "current", "late"]

    def test_copytruncate_of_a_file_of_which_nothing_was_stored(self, tmp_path: Path) -> None:
        log, other = tmp_path / "app.log", tmp_path / "other.log"
        log.touch()
        append(other, "other")
        before = run_until(tail(log, other), 1)
        append(log, "never seen in place")
        copytruncate(log, tmp_path / "app.log.1")
        after = run_until(tail(log, other), 1, before.last_position())
        assert after.records == ["never seen in place"]

    def test_a_copy_that_is_not_yet_followed_by_its_truncation_is_left_alone(
        self, tmp_path: Path
    ) -> None:
        log, other = tmp_path / "app.log", tmp_path / "other.log"
        log.touch()
        append(other, "other")
        before = run_until(tail(log, other), 1)
        append(log, "one", "two")
        shutil.copyfile(log, tmp_path / "app.log.1")
        (tmp_path / "app.log.2").write_text("one\nt")  # a copy that is still under way
        host = RecordingHost(before.last_position())
        with host.run(tail(log, other)):
            host.wait_for_records(2)
            append(log, "three")
            host.wait_for_records(3)
        assert host.records == ["one", "two", "three"]

    def test_a_reused_inode_is_another_file(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "old file")
        before = run_until(tail(log), 1)
        # The file system decides whether an inode is reused; an overwrite in place always keeps it.
        log.write_text("other file, same inode\n")
        log.rename(tmp_path / "app.log.1")
        append(log, "newest")
        after = run_until(tail(log), 2, before.last_position(), expect_errors=True)
        assert after.records == ["other file, same inode", "newest"]
        assert "is gone" in after.errors[0].message

    def test_a_missed_file_with_an_inode_of_a_deleted_one_is_read(self, tmp_path: Path) -> None:
        log, missed, foreign = tmp_path / "app.log", tmp_path / "app.log.1", tmp_path / "notes"
        append(log, "stored")
        position = run_until(tail(log), 1).last_position()
        append(log, "rest")
        log.rename(tmp_path / "app.log.2")
        append(missed, "missed")
        append(log, "current")
        append(foreign, "not a log")
        # Marks of files that are gone, whose inodes the file system gave to other files since.
        position["files"] += [
            {**position["files"][0], "path": str(tmp_path / "gone.log"), "inode": inode_of(missed)},
            {
                **position["files"][0],
                "path": str(tmp_path / "empty.log"),
                "inode": inode_of(foreign),
                "offset": 0,
                "crc": 0,
            },
        ]
        after = run_until(tail(tmp_path / "app.log"), 3, position, expect_errors=True)
        assert after.records == ["rest", "missed", "current"]
        assert [Path(report.message.split(" (")[0]).name for report in after.errors] == [
            "gone.log",
            "empty.log",
        ]

    def test_a_log_with_the_inode_of_a_deleted_file_is_the_newest_of_its_path(
        self, tmp_path: Path
    ) -> None:
        log = tmp_path / "app.log"
        append(tmp_path / "app.log.1", "history")
        append(log, "first")
        position = run_until(tail(log), 1).last_position()
        append(log, "rest")
        rotate(log, 1)
        append(log, "second")
        # An older mark, of a file that was deleted before the log was created with its inode.
        gone = {**position["files"][0], "path": str(tmp_path / "gone.log"), "inode": inode_of(log)}
        position["files"].insert(0, gone)
        after = run_until(tail(log), 2, position, expect_errors=True)
        assert after.records == ["rest", "second"]
        assert "gone.log" in after.errors[0].message
        rotate(log, 2)
        append(log, "third")
        assert run_until(tail(log), 1, after.last_position()).records == ["third"]

    def test_a_copy_with_the_inode_of_a_deleted_one_is_read(self, tmp_path: Path) -> None:
        log, copies = tmp_path / "app.log", [tmp_path / f"app.log.{n}" for n in range(1, 5)]
        append(log, "first")
        followed = follow(log)
        followed.scan()
        assert lines_of_a_round(followed) == ["first"]
        copytruncate(log, copies[0], then="second\n")
        followed.scan()
        assert lines_of_a_round(followed) == ["second"]
        position = position_from_marks(m for ms in followed.changes().values() for m in ms)
        followed.close()
        for copy, line in zip(copies[1:], ["third", "fourth", "fifth"], strict=True):
            copytruncate(log, copy, then=f"{line}\n")
        # The file system decides whether an inode is reused; so say that the last copy got it.
        (mark,) = (each for each in position["files"] if each["inode"] == inode_of(copies[0]))
        mark["inode"] = inode_of(copies[-1])
        copies[0].unlink()
        after = run_until(tail(log), 3, position, expect_errors=True)
        assert after.records == ["third", "fourth", "fifth"]
        assert "is gone" in after.errors[0].message


class TestDeletion:
    def test_a_deleted_file_is_read_to_its_end(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "one")
        host = RecordingHost()
        with host.run(tail(log)):
            host.wait_for_records(1)
            host.block_stores()
            with log.open("a") as writer:
                writer.write("two\n")
                writer.flush()
                log.unlink()
                writer.write("three\nlast, without an end")
            host.unblock_stores()
            host.wait_for_records(4)
            append(log, "new file")
            host.wait_for_records(5)
        assert host.records == ["one", "two", "three", "last, without an end", "new file"]
        assert offsets(host.last_position()) == {"app.log": log.stat().st_size}
        assert len(host.last_position()["files"]) == 1

    def test_what_went_while_down_is_said_and_forgotten(self, tmp_path: Path) -> None:
        log, other = tmp_path / "app.log", tmp_path / "other.log"
        append(log, "one")
        before = run_until(tail(log, other), 1, expect_errors=True)
        log.unlink()
        append(other, "two")
        after = run_until(tail(log, other), 1, before.last_position(), expect_errors=True)
        assert f"{log} (inode" in after.errors[1].message
        assert "are lost" in after.errors[1].message
        assert set(offsets(after.last_position())) == {"other.log"}

    def test_a_path_taken_out_is_not_followed_any_more(self, tmp_path: Path) -> None:
        old, new = tmp_path / "old.log", tmp_path / "new.log"
        append(old, "one")
        append(new, "two")
        before = run_until(tail(tmp_path / "*.log"), 2)
        append(old, "not asked for")
        append(new, "three")
        after = run_until(tail(new), 1, before.last_position())
        assert after.records == ["three"]
        assert set(offsets(after.last_position())) == {"new.log"}


class TestTrouble:
    def test_an_unusable_file_is_said_once_and_tried_again(self, tmp_path: Path) -> None:
        broken, fine = tmp_path / "broken.log", tmp_path / "fine.log"
        broken.symlink_to(broken)  # a loop: ELOOP, for root too
        append(fine, "fine")
        host = RecordingHost(expect_errors=True)
        with host.run(tail(broken, fine)):
            host.wait_until(lambda: bool(host.stores and host.errors))
            broken.unlink()
            append(broken, "fixed")
            assert host.wait_for_records(2) == ["fine", "fixed"]
        assert [f"cannot follow {broken}" in report.message for report in host.errors] == [True]

    def test_a_directory_is_not_a_log(self, tmp_path: Path) -> None:
        host = RecordingHost(expect_errors=True)
        with host.run(tail(tmp_path)):
            host.wait_until(lambda: bool(host.errors))
        assert "not a regular file" in host.errors[0].message

    def test_a_line_beyond_the_limit_stops_its_file_only(self, tmp_path: Path) -> None:
        long, fine = tmp_path / "long.log", tmp_path / "fine.log"
        append(long, "ok", "x" * 11, "after")
        host = RecordingHost(expect_errors=True)
        with host.run(tail(long, fine, max_line_bytes=10)):
            host.wait_until(lambda: len(host.errors) == 2)
            append(fine, "fine")
            assert host.wait_for_records(2) == ["ok", "fine"]
        assert isinstance(host.errors[1].error, ReceiverError)
        assert str(long) in host.errors[1].message
        assert "max_line_bytes" in host.errors[1].message
        fixed = run_until(tail(long, fine), 2, host.last_position())
        assert fixed.records == ["x" * 11, "after"]

    def test_a_fenced_store_ends_the_thread_without_a_restart(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "one")
        host = RecordingHost(expect_errors=True)
        host.fail_stores(FencedError("sealed by a successor"))
        receiver = tail(log)
        with host.run(receiver):
            assert receiver._thread is not None
            receiver._thread.join(WAIT_S)
            assert not receiver._thread.is_alive()
        assert (host.records, host.errors, host.restarts) == ([], [], [])

    def test_starting_twice_is_refused(self, tmp_path: Path) -> None:
        receiver = tail(tmp_path)
        host = RecordingHost(expect_errors=True)
        with host.run(receiver), pytest.raises(ReceiverError, match="still running"):
            receiver.onStart()

    def test_an_instance_used_before_starts_again(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        append(log, "one")
        receiver = tail(log)
        position = run_until(receiver, 1).last_position()
        append(log, "two")
        assert run_until(pickle.loads(pickle.dumps(receiver)), 1, position).records == ["two"]
        assert run_until(receiver, 1, position).records == ["two"]

    @pytest.mark.parametrize("position", [{"topic": {"0": 1}}, 7, {"version": 3, "files": []}])
    def test_a_position_of_something_else_is_refused(self, tmp_path: Path, position: Any) -> None:
        host = RecordingHost(position, expect_errors=True)
        with host.run(tail(tmp_path / "app.log")):
            host.wait_until(lambda: bool(host.restarts))
        assert isinstance(host.restarts[0].error, ReceiverError)
        assert "not one of a tail receiver" in str(host.restarts[0].error)

    @pytest.mark.parametrize("paths", [[], [""], "s3://bucket/app.log", ["a", "b\0"], [b"bytes"]])
    def test_bad_paths_fail_at_construction(self, paths: Any) -> None:
        with pytest.raises(ConfigError):
            TailReceiver(paths)

    @pytest.mark.parametrize(
        "options", [{"poll_interval_ms": 0}, {"rotate_wait_ms": -1}, {"max_line_bytes": 0}]
    )
    def test_bad_options_fail_at_construction(self, options: dict[str, int]) -> None:
        with pytest.raises(ConfigError):
            TailReceiver("app.log", **options)  # type: ignore[arg-type]

    def test_all_descriptors_are_given_back(self, tmp_path: Path) -> None:
        for i in range(20):
            append(tmp_path / f"{i}.log", "line")
        before = len(os.listdir("/proc/self/fd"))
        run_until(tail(tmp_path / "*.log"), 20)
        assert len(os.listdir("/proc/self/fd")) == before

    @pytest.mark.parametrize("seen", [["seen 1", "seen 2"], []])
    def test_what_was_copied_away_before_its_first_read_is_read_from_the_copy(
        self, tmp_path: Path, seen: list[str]
    ) -> None:
        log = tmp_path / "app.log"
        append(log, *seen)
        os.utime(log, (1, 1))
        follower = follow(log)
        follower.scan()
        append(log, "unseen")
        copytruncate(log, tmp_path / "app.log.1")
        append(log, "after", "a longer line than all of those that were there before it")
        assert lines_of_a_round(follower) == []
        follower.scan()
        assert lines_of_a_round(follower) == [*seen, "unseen"]
        assert lines_of_a_round(follower)[0] == "after"
        follower.close()

    def test_a_log_that_grows_all_the_time_is_read(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        log.touch()
        os.utime(log, (1, 1))
        follower = follow(log)
        found: list[str] = []
        for i in range(3):
            follower.scan()
            append(log, f"line {i}")
            found += lines_of_a_round(follower)
        assert found == ["line 0", "line 1", "line 2"]
        follower.close()

    def test_an_unfinished_line_may_be_replaced_by_a_shorter_one(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        log.write_text("an unfinished line")
        follower = follow(log)
        follower.scan()
        assert lines_of_a_round(follower) == []
        log.write_text("short\n")
        follower.scan()
        assert lines_of_a_round(follower) == ["short"]
        follower.close()

    def test_many_files_are_stored_together(self, tmp_path: Path) -> None:
        for i in range(300):
            append(tmp_path / f"{i:03}.log", f"line {i}")
        receiver = tail(tmp_path / "*.log")
        stores: list[Any] = []
        store = receiver.store
        receiver.store = lambda *given: (stores.append(given), store(*given))  # type: ignore
        host = run_until(receiver, 300)
        assert host.records == [f"line {i}" for i in range(300)]
        assert len(stores) == 1
        assert len(json.dumps(host.last_position())) < 200, "the marks are in a copy"
        again = tail(tmp_path / "*.log")
        with host.run(again):
            append(tmp_path / "123.log", "more")
            assert host.wait_for_records(301)[-1] == "more"
        assert [Path(file["path"]).name for file in host.last_position()["files"]] == ["123.log"]

    def test_files_beyond_the_descriptors_are_told_once_and_read_when_there_are_some(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(follower, "spare_descriptors", lambda: 2)
        logs = [tmp_path / f"{i}.log" for i in range(4)]
        for log in logs:
            append(log, f"line of {log.name}")
        host = RecordingHost(expect_errors=True)
        with host.run(tail(tmp_path / "*.log")):
            assert host.wait_for_records(2) == ["line of 0.log", "line of 1.log"]
            host.wait_until(lambda: bool(host.errors))
            append(logs[1], "more")
            host.wait_for_records(3)
            logs[0].unlink()
            assert host.wait_for_records(4)[3] == "line of 2.log"
        assert [error.message.partition(":")[0] for error in host.errors] == [
            "2 files are not read"
        ]
        assert "ulimit -n" in host.errors[0].message
        monkeypatch.undo()
        rest = run_until(tail(tmp_path / "*.log"), 1, host.last_position())
        assert rest.records == ["line of 3.log"]


# -- a clock that is set back --

HOUR_NS = 3_600 * 10**9


def set_back(path: Path, seconds: int) -> None:
    """Give a file the time that it has when it is written that long after a step of an hour."""
    then_ns = START_NS - HOUR_NS + seconds * 10**9
    os.utime(path, ns=(then_ns, then_ns))


START_NS = 1_700_000_000 * 10**9


def rotate(log: Path, count: int) -> None:
    """Rotate as logrotate does: the highest number is the oldest."""
    for number in range(count, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))


def test_rotations_that_were_missed_are_found_although_the_clock_went_back(
    tmp_path: Path,
) -> None:
    log = tmp_path / "app.log"
    append(log, "a")
    os.utime(log, ns=(START_NS, START_NS))
    host = run_until(tail(log), 1)
    append(log, "b")
    os.utime(log, ns=(START_NS, START_NS))
    for seconds, line in enumerate(["c", "d", "e"], start=1):  # while the receiver is down
        rotate(log, 3)
        append(log, line)
        set_back(log, seconds)
    assert run_until(tail(log), 4, host.last_position()).records == ["b", "c", "d", "e"]


def test_a_copy_is_found_although_the_clock_went_back(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "a")
    os.utime(log, ns=(START_NS, START_NS))
    host = run_until(tail(log), 1)
    append(log, "b")
    shutil.copyfile(log, tmp_path / "app.log.1")
    set_back(tmp_path / "app.log.1", 1)
    log.write_text("c\n")
    set_back(log, 2)
    again = run_until(tail(log), 2, host.last_position())
    assert (again.records, again.errors) == (["b", "c"], [])


def test_a_clock_that_goes_back_has_nothing_read_again(tmp_path: Path) -> None:
    """The files that were read and forgotten bear later times than the one that rotates then."""
    log = tmp_path / "app.log"
    followed = follow(log)
    lines: list[str] = []
    for number in range(8):
        if log.exists():
            rotate(log, 9)
        lines.append(f"line {number}")
        append(log, lines[-1])
        then_ns = START_NS + number * 10**9
        if number < 5:
            os.utime(log, ns=(then_ns, then_ns))
        else:
            set_back(log, number)
        followed.scan()
        assert lines_of_a_round(followed) == lines[-1:]
    followed.close()
