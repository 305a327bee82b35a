"""Which file is which: devices, inodes and links that change repeat and lose no line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock.receivers.tail import followed_file, listing
from penstock.receivers.tail.follow import FINGERPRINT_BYTES, FileId
from tests.receivers.followed import Receiver, append

LONG = "x" * FINGERPRINT_BYTES


# -- devices and inodes --


@pytest.mark.parametrize("line", ["short", LONG])
def test_a_device_number_is_no_part_of_a_position(tmp_path: Path, line: str) -> None:
    log, same, header = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "c.csv"
    append(log, line, "a")
    append(same, line, "a")  # not told apart by their content
    append(header, "id,name")
    receiver = Receiver(tmp_path / "*.log", tmp_path / "*.csv")
    assert len(receiver.new_lines()) == 5
    receiver.stop()
    append(same, "unread")
    append(header, "1,x")
    assert receiver.new_lines() == ["unread", "1,x"]
    receiver.stop()
    assert receiver.new_lines() == []
    assert receiver.told == []


@pytest.mark.parametrize("line", ["short", LONG])
def test_a_rotation_is_found_although_three_files_begin_alike(tmp_path: Path, line: str) -> None:
    log = tmp_path / "app.csv"
    append(log, line)
    receiver = Receiver(log)
    assert receiver.new_lines() == [line]
    receiver.stop()
    append(log, "unread")
    log.rename(tmp_path / "app.csv.2")
    append(tmp_path / "app.csv.1", line, "missed")
    append(log, line, "current")  # all three begin alike
    assert receiver.new_lines() == ["unread", line, "missed", line, "current"]
    assert receiver.told == []


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> dict[int, FileId]:
    """What the file system says of files, by their real inodes, where that is not the truth."""
    said: dict[int, FileId] = {}

    def file_id(facts: os.stat_result) -> FileId:
        return said.get(facts.st_ino, FileId(facts.st_dev, facts.st_ino))

    for module in (listing, followed_file):
        monkeypatch.setattr(module, "file_id", file_id)
    return said


def test_two_devices_that_swap_their_numbers(tmp_path: Path, ids: dict[int, FileId]) -> None:
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    for device, log in enumerate(logs):
        append(log, f"first of {log.name}")
        ids[log.stat().st_ino] = FileId(device, 5)
    receiver = Receiver(tmp_path / "*.log")
    assert len(receiver.new_lines()) == 2
    receiver.stop()
    for device, log in enumerate(reversed(logs)):
        append(log, f"unread of {log.name}")
        ids[log.stat().st_ino] = FileId(device, 5)
    assert sorted(receiver.new_lines()) == ["unread of a.log", "unread of b.log"]
    assert receiver.told == []


def test_files_that_are_gone_with_their_folder_are_reported_and_forgotten(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    append(logs / "app.log", "first")
    receiver = Receiver(logs / "*.log")
    assert receiver.new_lines() == ["first"]
    receiver.stop()
    shutil.rmtree(logs)
    assert receiver.new_lines() == []
    assert [message for message in receiver.told if "are lost" in message]
    assert receiver.position() == []


def test_a_file_with_the_same_header_line_in_the_place_of_a_deleted_one(tmp_path: Path) -> None:
    log = tmp_path / "table.csv"
    append(log, "id,name")
    receiver = Receiver(log)
    assert receiver.new_lines() == ["id,name"]
    receiver.stop()
    append(tmp_path / "next", "id,name", "1,x")
    (tmp_path / "next").replace(log)
    assert receiver.new_lines() == ["id,name", "1,x"]


def test_hard_links_are_one_file(tmp_path: Path) -> None:
    log, link = tmp_path / "a.log", tmp_path / "b.log"
    append(log, "first")
    os.link(log, link)
    os.link(log, tmp_path / "a.log.1")
    receiver = Receiver(tmp_path / "*.log")
    assert receiver.new_lines() == ["first"]
    append(log, "second")
    assert receiver.new_lines() == ["second"]
    receiver.stop()
    append(link, "third")
    link.unlink()
    assert receiver.new_lines() == ["third"]
    assert receiver.told == []


def test_many_files_that_begin_alike(tmp_path: Path) -> None:
    for number in range(3_000):
        append(tmp_path / f"{number}.log", "same line")
    receiver = Receiver(tmp_path / "*.log")
    assert len(receiver.new_lines()) == 3_000
    receiver.stop()
    append(tmp_path / "77.log", "unread")
    assert receiver.new_lines() == ["unread"]
    assert receiver.told == []
    receiver.stop()


# -- links --


class Releases:
    """Folders of releases with a log each, and a link to the current one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.link = folder / "current" / "errors.log"

    def log(self, release: str) -> Path:
        (self._folder / release).mkdir(exist_ok=True)
        return self._folder / release / "errors.log"

    def deploy(self, release: str) -> None:
        self.log(release)
        (self._folder / "next").symlink_to(self._folder / release)
        (self._folder / "next").replace(self._folder / "current")


@pytest.fixture
def releases(tmp_path: Path) -> Releases:
    return Releases(tmp_path)


@pytest.mark.parametrize("pattern", ["current/errors.log", "curren*/*.log", "**/errors.log"])
def test_a_link_that_is_switched_while_the_receiver_is_down(
    tmp_path: Path, releases: Releases, pattern: str
) -> None:
    append(releases.log("v1"), "first")
    releases.deploy("v1")
    receiver = Receiver(tmp_path / pattern)
    assert receiver.new_lines() == ["first"]
    receiver.stop()
    append(releases.log("v1"), "last words")
    append(releases.log("v2"), "of v2")
    releases.deploy("v2")
    assert sorted(receiver.new_lines()) == ["last words", "of v2"]
    receiver.stop()
    append(releases.log("v2"), "more of v2")
    releases.deploy("v1")
    append(releases.log("v1"), "of v1 again")
    assert sorted(receiver.new_lines()) == ["more of v2", "of v1 again"]
    assert receiver.told == []


def test_a_log_that_rotates_before_its_link_is_switched(releases: Releases) -> None:
    append(releases.log("v1"), "first")
    releases.deploy("v1")
    receiver = Receiver(releases.link)
    assert receiver.new_lines() == ["first"]
    receiver.stop()
    log = releases.log("v1")
    append(log, "unread")
    log.rename(log.with_name("errors.log.2"))
    append(log.with_name("errors.log.1"), "missed")
    append(log, "newest of v1")
    append(releases.log("v2"), "of v2")
    releases.deploy("v2")
    found = receiver.new_lines()
    assert [line for line in found if line != "of v2"] == ["unread", "missed", "newest of v1"]
    assert sorted(found)[2] == "of v2"
    receiver.stop()
    append(log, "more of v1")
    assert receiver.new_lines() == ["more of v1"]
    assert receiver.told == []


def test_an_old_target_that_is_gone_is_reported(tmp_path: Path, releases: Releases) -> None:
    append(releases.log("v1"), "first")
    releases.deploy("v1")
    receiver = Receiver(releases.link)
    assert receiver.new_lines() == ["first"]
    receiver.stop()
    append(releases.log("v1"), "lost")
    releases.deploy("v2")
    shutil.rmtree(tmp_path / "v1")
    append(releases.log("v2"), "of v2")
    assert receiver.new_lines() == ["of v2"]
    (message,) = receiver.told
    assert str(tmp_path / "v1" / "errors.log") in message
    assert "are lost" in message


# -- marks that are dropped --


def test_a_path_that_is_taken_out_with_unread_bytes_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read, unread, other = (tmp_path / name for name in ("read.log", "unread.log", "other.log"))
    for log in (read, unread, other):
        append(log, log.name)
    first = Receiver(tmp_path / "*.log")
    assert len(first.new_lines()) == 3
    first.stop()
    append(unread, "not asked for")
    first._options = Receiver(other)._options
    assert first.new_lines() == []
    assert "read.log is not followed" not in caplog.text.replace("unread.log", "")
    assert f"{unread} is not followed any more" in caplog.text


def test_a_rotated_file_that_was_read_whole_may_go(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "first")
    receiver = Receiver(log)
    assert receiver.new_lines() == ["first"]
    log.rename(tmp_path / "app.log.1")
    append(log, "second")
    assert receiver.new_lines() == ["second"]
    receiver.stop()
    (tmp_path / "app.log.1").unlink()  # compressed, or deleted
    append(log, "third")
    assert receiver.new_lines() == ["third"]
    assert receiver.told == []


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("is_copied", [False, True])
def test_a_rotated_file_that_was_compressed_before_it_was_read_to_its_end_is_named(
    tmp_path: Path, ending: str, is_copied: bool
) -> None:
    log = tmp_path / "app.log"
    append(log, "first")
    receiver = Receiver(log)
    assert receiver.new_lines() == ["first"]
    receiver.stop()
    append(log, "unread")
    for number in (1, 2):
        (tmp_path / f"app.log.{number}.{ending}").write_bytes(b"compressed")
    os.utime(tmp_path / f"app.log.2.{ending}", (1, 1))  # of an earlier rotation
    if is_copied:
        log.write_text("")
    else:
        log.unlink()
    append(log, "next")
    assert receiver.new_lines() == ["next"]
    (message,) = receiver.told
    assert f"lines after byte 6 that were not read yet, if there were any, are in {tmp_path}" in (
        message
    )
    assert f"app.log.1.{ending} at most, which is not read" in message
    assert "delaycompress" in message


def test_a_truncated_file_that_was_read_whole_has_lost_nothing(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    append(log, "first")
    receiver = Receiver(log)
    assert receiver.new_lines() == ["first"]
    log.write_text("new\n")
    assert receiver.new_lines() == ["new"]
    (message,) = receiver.told
    assert "was truncated" in message
    assert "lost" not in message


# -- files that are replaced --


def test_a_file_that_an_editor_or_rsync_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    log, lines = tmp_path / "app.log", [f"{LONG} {number}" for number in range(9)]
    append(log, *lines)
    receiver = Receiver(log)
    assert receiver.new_lines() == lines
    append(tmp_path / ".app.log.swp", *lines[1:], "new")
    (tmp_path / ".app.log.swp").replace(log)
    assert receiver.new_lines() == [*lines[1:], "new"]
    assert receiver.told == []
