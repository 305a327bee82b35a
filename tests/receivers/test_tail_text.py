"""What a followed file holds beside lines of UTF-8: NULs, marks of byte order, other encodings."""

from __future__ import annotations

import gzip
import lzma
import mmap
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.receivers.followed import Receiver, append

MIB = 1 << 20
LINE_BYTES = 10_000
"""A receiver here takes no longer lines, so most holes are longer than a line may be."""


class Writer:
    """A program that writes at its own offset, as with ``>`` in a shell, and may skip bytes."""

    def __init__(self, path: Path, reserved: int = 0) -> None:
        self.path = path
        self._offset = 0
        path.write_bytes(b"")
        os.truncate(path, reserved)

    def write(self, *lines: str, end: str = "\n") -> None:
        data = "".join(f"{line}{end}" for line in lines).encode()
        with self.path.open("r+b") as file:
            file.seek(self._offset)
            file.write(data)
        self._offset += len(data)

    def skip(self, count: int) -> None:
        self._offset += count


def copytruncate(path: Path, copy: Path) -> None:
    shutil.copyfile(path, copy)
    os.truncate(path, 0)


# -- NULs --


@pytest.mark.parametrize("size", [100, 5_000, 40 * MIB])
@pytest.mark.parametrize("is_down", [False, True])
def test_lines_behind_a_hole_of_copytruncate(tmp_path: Path, size: int, is_down: bool) -> None:
    log = Writer(tmp_path / "app.log")
    receiver = Receiver(log.path)
    log.write("first")
    log.skip(size)
    log.write("second")
    assert receiver.new_lines() == ["first", "second"]
    for number in range(3):
        if is_down:
            receiver.stop()
        log.write(f"before {number}")
        if not is_down:
            assert receiver.new_lines() == [f"before {number}"]
        copytruncate(log.path, tmp_path / f"app.log.{number}")
        log.write(f"after {number}", "more")
        found = receiver.new_lines()
        assert found == [f"before {number}"] * is_down + [f"after {number}", "more"]
    assert not [message for message in receiver.told if "lost" in message or "long" in message]


@pytest.mark.parametrize("reserved", [3_000, 20 * MIB])
def test_lines_that_are_filled_in_later(tmp_path: Path, reserved: int) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"\0" * reserved)
    os.utime(log, ns=(1, 1))
    receiver = Receiver(log, rotate_wait_ms=60_000)
    assert receiver.new_lines() == []
    with log.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for text, lines in [
            (b"one\ntwo\nth", ["one", "two"]),
            (b"r", []),
            (b"ee\n", ["three"]),
            (b"\n\nlast\n", ["", "", "last"]),
        ]:
            memory.write(text)
            os.utime(log, ns=(1, 1))  # as long as nothing is flushed, a file's times may stay
            assert receiver.new_lines() == lines
        receiver.stop()
        memory.write(b"after a restart\n")
        os.utime(log, ns=(1, 1))
        assert receiver.new_lines() == ["after a restart"]
    assert receiver.told == []


@pytest.mark.parametrize("rest", ["", "rest"])
@pytest.mark.parametrize("is_truncated", [False, True])
def test_a_reserved_log_that_is_closed_and_renamed(
    tmp_path: Path, rest: str, is_truncated: bool
) -> None:
    log = Writer(tmp_path / "app.log", reserved=MIB)
    log.write("one", "two")
    log.write(rest, end="")
    receiver = Receiver(log.path)
    assert receiver.new_lines() == ["one", "two"]
    if is_truncated:
        os.truncate(log.path, len(b"one\ntwo\n") + len(rest))
    log.path.rename(tmp_path / "app.log.1")
    append(log.path, "next")
    assert receiver.new_lines() == [*([rest] if rest else []), "next"]
    receiver.stop()
    assert receiver.new_lines() == []
    assert receiver.told == []


def test_a_deleted_log_with_reserved_bytes_is_given_back(tmp_path: Path) -> None:
    log = Writer(tmp_path / "app.log", reserved=MIB)
    log.write("one")
    receiver = Receiver(log.path)
    assert receiver.new_lines() == ["one"]
    log.path.unlink()
    assert receiver.new_lines() == []
    assert receiver.position() == []


def test_nuls_before_a_line_are_no_part_of_it(tmp_path: Path) -> None:
    """A log that is written in blocks, each filled up with NULs."""
    log = Writer(tmp_path / "app.log")
    for number in range(500):
        log.write(f"block {number}")
        log.skip(100)
    receiver = Receiver(log.path)
    assert receiver.new_lines() == [f"block {number}" for number in range(500)]
    receiver.stop()
    log.write("next")
    assert receiver.new_lines() == ["next"]


def test_a_line_that_is_cut_off_before_more_nuls_than_a_line_may_have_is_reported(
    tmp_path: Path,
) -> None:
    log = Writer(tmp_path / "app.log")
    log.write("first")
    log.write("cut off", end="")
    log.skip(5 * MIB)
    log.write("next")
    receiver = Receiver(log.path)
    assert receiver.new_lines() == ["first"]
    assert ["max_line_bytes" in message for message in receiver.told] == [True]


def test_nuls_within_a_line_are_data(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"a\0b\nc\0\n")
    assert Receiver(log).new_lines() == ["a\0b", "c\0"]


def test_what_is_written_during_a_read_is_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, read = tmp_path / "app.log", os.pread
    log.write_bytes(b"written\nbehind\n\0\0")
    stale = [b"\0\0\0\0\0\0\0\0behind\n"]  # as seen by a read that began before the first line

    def pread(descriptor: int, count: int, position: int) -> bytes:
        return stale.pop() if stale and count > MIB else read(descriptor, count, position)

    monkeypatch.setattr(os, "pread", pread)
    assert Receiver(log).new_lines() == ["written", "behind"]
    assert not stale


# -- byte order marks and other encodings --


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"\xef\xbb")
    receiver = Receiver(log)
    assert receiver.new_lines() == []
    with log.open("ab") as file:
        file.write(b"\xbf" + "first\r\n\ufeffsecond\r\n".encode())
    assert receiver.new_lines() == ["first", "\ufeffsecond"]
    receiver.stop()
    append(log, "third")
    assert receiver.new_lines() == ["third"]
    rotated = tmp_path / "app.log.1"
    log.rename(rotated)
    log.write_bytes(b"\xef\xbb\xbf")
    assert receiver.new_lines() == []
    log.rename(tmp_path / "app.log.0")
    assert receiver.new_lines() == []


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("first\nsecond\n".encode("utf-16"), "UTF-16"),
        ("first\nsecond\n".encode("utf-16-le"), "UTF-16"),
        ("first\nsecond\n".encode("utf-16-be"), "UTF-16"),
        (b"\xfe\xff" + "first\n".encode("utf-16-be"), "UTF-16"),
        ("first\n".encode("utf-32"), "UTF-16"),
        (gzip.compress(b"first\n" * 99), "gzip"),
        (lzma.compress(b"first\n" * 99), "xz"),
    ],
    ids=["16", "16-le", "16-be", "16-be with mark", "32", "gzip", "xz"],
)
def test_a_file_that_is_no_text_is_refused_by_name(
    tmp_path: Path, content: bytes, kind: str
) -> None:
    log, other = tmp_path / "app.log", tmp_path / "other.log"
    log.write_bytes(content)
    append(other, "text")
    receiver = Receiver(tmp_path / "*.log")
    assert receiver.new_lines() == ["text"]
    with log.open("ab") as file:
        file.write(content)
    assert receiver.new_lines() == []
    (message,) = receiver.told
    assert str(log) in message
    assert kind in message
    log.write_text("converted\n")
    assert receiver.new_lines() == ["converted"]


def test_utf_16_that_arrives_byte_by_byte_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    receiver = Receiver(log)
    for byte in "first\n".encode("utf-16"):
        with log.open("ab") as file:
            file.write(bytes([byte]))
        assert receiver.new_lines() == []
    assert any("UTF-16" in message for message in receiver.told)


def test_bytes_that_are_not_utf_8_are_replaced(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes("f\xfcr\n".encode("latin-1"))
    assert Receiver(log).new_lines() == ["f\ufffdr"]


@pytest.mark.storm  # it measures
def test_a_speed_that_holes_do_not_take(tmp_path: Path) -> None:
    """A long hole with nothing behind it is searched once, not at each look."""
    log = tmp_path / "app.log"
    log.write_bytes(b"line\n")
    os.truncate(log, 1 << 40)
    receiver = Receiver(log)
    began_s = time.monotonic()
    assert receiver.new_lines() == ["line"]
    assert time.monotonic() - began_s < 5
