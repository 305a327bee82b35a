"""Which files a batch takes, without Spark: every file once, whatever the ticks and restarts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streaming.inputs.files.hadoop import is_readable, reading_pattern
from penstock.streaming.inputs.files.selection import (
    FileOffset,
    ListedFile,
    TakenFiles,
    next_offset,
)

INTERVAL_MS = 1000
REMEMBER_MS = 5000


def window(previous: FileOffset, time_ms: int) -> FileOffset:
    return next_offset(previous, time_ms, interval_ms=INTERVAL_MS, remember_ms=REMEMBER_MS)


def span(offset: FileOffset) -> tuple[int, int]:
    return offset.after_ms, offset.until_ms


def test_first_window_begins_where_new_files_do() -> None:
    assert span(window(FileOffset(19_200, 19_200), 20_000)) == (19_200, 20_000)
    assert span(window(FileOffset(14_200, 19_200), 20_000)) == (15_000, 20_000)


def test_windows_slide_with_the_ticks() -> None:
    assert span(window(FileOffset(15_000, 20_000), 21_000)) == (16_000, 21_000)


def test_files_older_than_the_first_window_stay_out() -> None:
    assert span(window(FileOffset(18_500, 20_000), 21_000)) == (18_500, 21_000)


def test_a_window_after_a_gap_reaches_back_to_the_first_tick_in_it() -> None:
    assert span(window(FileOffset(15_000, 20_000), 90_000)) == (16_000, 90_000)


def test_windows_begin_anew_when_the_clock_was_set_back() -> None:
    back = window(FileOffset(15_000, 20_000), 12_000)
    assert span(back) == (7_000, 12_000)
    assert span(window(back, 13_000)) == (8_000, 13_000)


def test_offset_holds_its_own_files_under_their_folders() -> None:
    files = (ListedFile("file:/in/a", 1, 2), ListedFile("file:/in/b", 3, 4))
    offset = FileOffset(5, 6, (*files, ListedFile("s3a://b/x/c", 7, 8)))
    value = offset.to_json()
    assert value == {
        "after": 5,
        "until": 6,
        "files": {"file:/in": [["a", 1, 2], ["b", 3, 4]], "s3a://b/x": [["c", 7, 8]]},
    }
    assert FileOffset.from_json(json.loads(json.dumps(value))) == offset


def test_a_change_is_told_once_and_makes_no_new_file() -> None:
    taken = TakenFiles()
    taken.add(FileOffset(0, 12, (ListedFile("f", 10, 1),)))
    grown = [ListedFile("f", 20, 2)]
    assert taken.changed(grown) == grown
    assert taken.changed(grown) == []
    taken.forget(15)  # its new time is what counts now
    assert taken.select(grown, FileOffset(15, 30), lambda path: True).files == ()


@pytest.mark.parametrize(
    ("name", "readable"),
    [("a", True), (".a", False), ("_SUCCESS", False), ("a._COPYING_", False), ("a_b.c", True)],
)
def test_names_that_are_passed_over(name: str, readable: bool) -> None:
    assert is_readable(f"hdfs://host/_x/.y/{name}") is readable


def test_patterns_match_one_path() -> None:
    assert reading_pattern("file:/in/a b+c.txt") == "file:/in/a b+c.txt"
    assert reading_pattern("a,b{c}[d]*?\\") == (
        r"a[\x2c]b[\x7b]c[\x7d][\x5b]d[\x5d][\x2a][\x3f][\x5c]"
    )


@given(
    files=st.lists(
        st.tuples(st.integers(10_001, 40_000), st.integers(0, REMEMBER_MS - INTERVAL_MS - 1))
    ),
    gaps=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    restarts=st.sets(st.integers(0, 12)),
)
def test_every_file_is_taken_once(
    files: list[tuple[int, int]], gaps: list[int], restarts: set[int]
) -> None:
    """Files are late, by less than an interval short of what is allowed; drivers restart."""
    shown = [
        (modified_ms + late_ms, ListedFile(f"f{number}", modified_ms, 0))
        for number, (modified_ms, late_ms) in enumerate(files)
    ]
    log: list[tuple[int, FileOffset]] = []
    memory = TakenFiles()
    time_ms = 10_000
    for number, gap in enumerate([*gaps, 60, 1]):
        if number in restarts and log:
            memory = TakenFiles()  # from the log's entries that are surely still there
            for batch_ms, entry in log:
                if batch_ms > log[-1][0] - REMEMBER_MS:
                    memory.add(entry)
        time_ms += gap * INTERVAL_MS
        now = window(log[-1][1] if log else FileOffset(10_000, 10_000), time_ms)
        memory.forget(now.after_ms - INTERVAL_MS)
        listing = [file for shown_ms, file in shown if shown_ms <= time_ms]
        chosen = memory.select(listing, now, lambda path: True)
        memory.add(chosen)
        log.append((time_ms, chosen))
    counted = sorted(file.path for _, entry in log for file in entry.files)
    early = {f.path for at, f in shown if f.modified_ms <= log[0][1].after_ms}
    assert counted == sorted(f.path for _, f in shown if f.path not in early)
