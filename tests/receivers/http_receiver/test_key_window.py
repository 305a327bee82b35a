"""Keys in positions and files: what a newest position tells, and which files are let go."""

from __future__ import annotations

import logging

import pytest

from penstock.errors import ReceiverError
from penstock.receivers.http import key_window
from penstock.receivers.http.answers import Placement
from penstock.receivers.http.key_window import KeyWindow
from penstock.receivers.http.keys import KeptKey, KnownKeys, key_hash
from penstock.testing import ManualClock, RecordingHost

WRITER = "r0-00000002"
WINDOW_MS = 1000


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_window, "FILE_KEYS", 4)


def kept(number: int, time_ms: int = 0, writer: str = WRITER) -> KeptKey:
    return KeptKey(
        key_hash(b"%d" % number), b"c" * 16, Placement(writer, number, number + 2), time_ms
    )


def test_the_newest_position_and_its_files_hold_every_key() -> None:
    files = RecordingHost().own_files()
    window = KeyWindow(WINDOW_MS, files)
    assert window.position(WRITER, 0) is None
    for number in range(21):
        window.add(kept(number, time_ms=number))
        made = window.position(WRITER, number)
        assert made is not None
        assert KeyWindow(WINDOW_MS, files, made.value).load() == [
            kept(n, time_ms=n) for n in range(number + 1)
        ]
        assert len(str(made.value)) < 1000
    assert len(files.names()) == 5


def test_the_keys_of_earlier_writers_are_carried_on() -> None:
    files = RecordingHost().own_files()
    first = KeyWindow(WINDOW_MS, files)
    keys = [kept(n, writer=f"r0-0000000{n}") for n in range(6)]
    for key in keys:
        first.add(key)
        made = first.position(key.at.writer, 0)
        assert made is not None
        first = KeyWindow(WINDOW_MS, files, made.value)
    assert first.load() == keys


def test_a_file_that_is_over_is_garbage_once_no_position_names_it() -> None:
    files = RecordingHost().own_files()
    window = KeyWindow(WINDOW_MS, files)
    for number in range(4):
        window.add(kept(number, time_ms=10))
    made = window.position(WRITER, 10)
    assert made is not None
    assert made.garbage == ()
    names = files.names()
    window.add(kept(9, time_ms=1011))
    made = window.position(WRITER, 1011)
    assert made is not None
    assert list(made.garbage) == names == files.names(), "deleted by the receiver, later"
    assert KeyWindow(WINDOW_MS, files, made.value).load() == [kept(9, time_ms=1011)]
    made = window.position(WRITER, 5000)
    assert made is not None
    assert KeyWindow(WINDOW_MS, files, made.value).load() == []
    assert window.position(WRITER, 5000) is None


def test_no_more_keys_are_kept_than_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_window, "MAX_KEYS", 10)
    window = KeyWindow(WINDOW_MS, RecordingHost().own_files())
    garbage = 0
    for number in range(100):
        window.add(kept(number))
        made = window.position(WRITER, 0)
        assert made is not None
        garbage += len(made.garbage)
    assert garbage >= 100 // 4 - 3


def test_only_what_earlier_epochs_left_behind_is_garbage() -> None:
    files = RecordingHost().own_files()
    for name in (
        "keys-r0-00000001-00000007",
        "keys-r0-00000003-00000000",
        "other",
        "keys-r0-00000001-x",
    ):
        files.create(name, b"")
    window = KeyWindow(WINDOW_MS, files)
    for number in range(4):
        window.add(kept(number))
    made = window.position(WRITER, 0)
    assert made is not None
    assert made.garbage == ("keys-r0-00000001-00000007",)


def test_a_writer_that_is_gone_on_with_gives_its_files_new_names() -> None:
    files = RecordingHost().own_files()
    for number in range(12):
        window = KeyWindow(WINDOW_MS, files)
        for key in range(4):
            window.add(kept(4 * number + key))
        assert window.position(WRITER, 0) is not None
        assert len(files.names()) == number + 1


def test_a_damaged_file_is_refused_and_a_missing_one_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = RecordingHost().own_files()
    window = KeyWindow(WINDOW_MS, files)
    for number in range(4):
        window.add(kept(number))
    made = window.position(WRITER, 0)
    assert made is not None
    (name,) = files.names()
    whole = files.read(name)
    for at in range(len(whole)):
        files.delete(name)
        files.create(name, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ReceiverError, match="damaged"):
            KeyWindow(WINDOW_MS, files, made.value).load()
    files.delete(name)
    with caplog.at_level(logging.WARNING):
        assert KeyWindow(WINDOW_MS, files, made.value).load() == []
    assert name in caplog.text


def test_a_position_of_another_source_holds_no_keys() -> None:
    for position in (None, 7, {"file": 3}, [1]):
        assert KeyWindow(WINDOW_MS, RecordingHost().own_files(), position).load() == []


def test_known_keys_are_bounded_in_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.receivers.http.keys.MAX_KEYS", 3)
    known = KnownKeys(WINDOW_MS, [kept(0, time_ms=0)])
    assert known.find(kept(0).key, 999) == kept(0)
    assert known.find(kept(0).key, 1000) is None
    for number in range(1, 5):
        known.add(kept(number, time_ms=number))
    assert len(known) == 3
    known.add(kept(5, time_ms=1003))
    assert [n for n in range(6) if known.find(kept(n).key, 1003)] == [4, 5]


@pytest.mark.parametrize("by_ms", [365 * 86_400_000, -365 * 86_400_000])
def test_a_clock_that_is_set_makes_no_key_forgotten(by_ms: int) -> None:
    files, clock = RecordingHost().own_files(), ManualClock(10**12)
    window = KeyWindow(WINDOW_MS, files, clock=clock)
    known = KnownKeys(WINDOW_MS)
    position = None
    for number in range(9):
        key = kept(number, time_ms=window.clock.time_ms())
        window.add(key)
        known.add(key)
        position = window.position(WRITER, key.time_ms)
        clock.set_wall(by_ms)
    assert position is not None
    assert all(known.find(key_hash(b"%d" % n), window.clock.time_ms()) for n in range(9))

    again = KeyWindow(WINDOW_MS, files, position.value, clock)
    assert [key.key for key in again.load()] == [key_hash(b"%d" % n) for n in range(9)]
    known = KnownKeys(WINDOW_MS, again.load())
    clock.advance(WINDOW_MS - 1)
    assert known.find(key_hash(b"8"), again.clock.time_ms()) is not None
    clock.advance(1)
    assert known.find(key_hash(b"8"), again.clock.time_ms()) is None
