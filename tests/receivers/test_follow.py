"""The decisions of following files, over every combination of facts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.receivers.tail.follow import (
    Action,
    Decision,
    FileId,
    Mark,
    Place,
    Sibling,
    Start,
    decide,
    decide_new,
    fingerprint,
    is_rotated_name,
    missed_rotations,
    superseded,
)

ANY = (False, True)

# (place, intact, copied): None stands for both. Each combination must meet exactly one row.
DECISIONS = [
    ((Place.FOLLOWED, True, None), Decision(Action.CONTINUE)),
    ((Place.FOLLOWED, False, True), Decision(Action.START_OVER, finish_copy=True)),
    ((Place.FOLLOWED, False, False), Decision(Action.START_OVER, content_lost=True)),
    ((Place.RENAMED, True, None), Decision(Action.FINISH)),
    ((Place.RENAMED, False, True), Decision(Action.DROP, finish_copy=True)),
    ((Place.RENAMED, False, False), Decision(Action.DROP, content_lost=True)),
    ((Place.UNLINKED, True, None), Decision(Action.DRAIN)),
    ((Place.UNLINKED, False, True), Decision(Action.DROP, finish_copy=True)),
    ((Place.UNLINKED, False, False), Decision(Action.DROP, content_lost=True)),
    ((Place.MISSING, None, True), Decision(Action.DROP, finish_copy=True)),
    ((Place.MISSING, None, False), Decision(Action.DROP, content_lost=True)),
]


@pytest.mark.parametrize(("place", "intact", "copied"), list(itertools.product(Place, ANY, ANY)))
def test_every_combination_of_facts_has_one_decision(
    place: Place, intact: bool, copied: bool
) -> None:
    facts = (place, intact, copied)
    rows = [
        decision
        for row, decision in DECISIONS
        if all(want is None or want == fact for want, fact in zip(row, facts, strict=True))
    ]
    assert [decide(place, intact=intact, copied=copied)] == rows


@pytest.mark.parametrize(
    ("resumed", "first_scan", "from_beginning"), list(itertools.product(ANY, repeat=3))
)
def test_only_the_very_first_scan_may_begin_at_the_end(
    resumed: bool, first_scan: bool, from_beginning: bool
) -> None:
    start = decide_new(resumed=resumed, first_scan=first_scan, from_beginning=from_beginning)
    at_end = (resumed, first_scan, from_beginning) == (False, True, False)
    assert start is (Start.END if at_end else Start.BEGINNING)


@pytest.mark.parametrize(
    ("base", "name", "rotated"),
    [
        ("app.log", "app.log.1", True),
        ("app.log", "app.log.12", True),
        ("app.log", "app.log-20240131", True),
        ("app.log", "app.log.2024-01-31T10:00:00", True),
        ("app.log", "app.log.old", True),
        ("app.log", "app-2024-01-31.log", True),
        ("app.log", "app.3.log", True),
        ("catalina.out", "catalina.out_1", True),
        ("messages", "messages.1", True),
        ("app.log", "app.log", False),
        ("app.log", "app.log.1.gz", False),
        ("app.log", "app.logs", False),
        ("app.log", "app.log.swp", False),
        ("app.log", "app-worker.log", False),
        ("app.log", "appxlog.1", False),
        ("app.log", "other-app.log.1", False),
        (".log", "-1.log", False),
    ],
)
def test_names_of_rotated_files(base: str, name: str, rotated: bool) -> None:
    assert is_rotated_name(base, name) is rotated


def mark(inode: int = 1, mtime_ns: int = 100, path: str = "/logs/app.log") -> Mark:
    return Mark(path, FileId(1, inode), offset=10, crc=7, mtime_ns=mtime_ns)


def sibling(name: str, inode: int, mtime_ns: int) -> Sibling:
    return Sibling(name, f"/logs/{name}", FileId(1, inode), 50, mtime_ns)


def test_missed_rotations_are_the_unknown_newer_ones_in_the_order_of_time() -> None:
    files = [
        sibling("app.log.1", 5, 300),
        sibling("app.log.2", 4, 200),
        sibling("app.log.3", 3, 100),  # as new as the mark: times are coarse, so it counts
        sibling("app.log.4", 2, 99),  # read long ago
        sibling("app.log.5", 1, 150),  # known
        sibling("app.log.6.gz", 6, 400),
        sibling("else.log.1", 7, 400),
    ]
    missed = missed_rotations([mark()], files, known={FileId(1, 1)}, proven={FileId(1, 1)})
    assert [file.name for file in missed] == ["app.log.3", "app.log.2", "app.log.1"]


@given(times=st.lists(st.integers(min_value=0, max_value=3), min_size=1, max_size=6))
def test_a_forgotten_file_is_never_taken_for_a_missed_one(times: list[int]) -> None:
    """Whatever equal times a coarse clock gives: files in rotation order, the last one current."""
    marks = [mark(inode, mtime_ns) for inode, mtime_ns in enumerate(sorted(times))]
    kept = [m for i, m in enumerate(marks) if not superseded(m, marks[i + 1 :])]
    names = [sibling(f"app.log.{i}", m.file_id.inode, m.mtime_ns) for i, m in enumerate(marks[:-1])]
    ids = {m.file_id for m in kept}
    assert missed_rotations(marks, names, known=ids, proven=ids) == []
    assert kept[-2:] == marks[-2:]


def rotations(names: list[str]) -> list[Sibling]:
    """Siblings whose inodes count up in the order of rotation, and whose times count down."""
    return [sibling(f"app.log.{name}", inode, -inode) for inode, name in enumerate(names)]


@pytest.mark.parametrize("names", [["4", "3", "2", "1"], ["8", "9", "10", "11"]])
def test_numbers_tell_what_was_missed_although_the_clock_went_back(names: list[str]) -> None:
    """Two of the files are known; the one before them was forgotten, the one after them missed."""
    known = [mark(inode) for inode in (1, 2)]
    ids = {FileId(1, 1), FileId(1, 2)}
    missed = missed_rotations(known, rotations(names), known=ids, proven=ids)
    assert [each.file_id.inode for each in missed] == [3]


@pytest.mark.parametrize("proven", [{FileId(1, 1)}, {FileId(1, 2)}, set()])
def test_numbers_of_files_that_may_have_got_the_inode_since_tell_nothing(
    proven: set[FileId],
) -> None:
    files = [sibling(f"app.log.{inode}", inode, mtime_ns=100 + inode) for inode in (3, 2, 1)]
    marks = [mark(1), mark(2)]
    for marks_as_stored in (marks, marks[::-1]):
        missed = missed_rotations(marks_as_stored, files, known=set(), proven=proven)
        assert [each.file_id.inode for each in missed] == [1, 2, 3]


def test_numbers_of_one_known_file_count_when_the_clock_is_seen_to_have_gone_back() -> None:
    files = rotations(["3", "2", "1"])
    for went_back, expected in ((True, [1, 2]), (False, [])):
        ids = {FileId(1, 0)}
        missed = missed_rotations([mark(0)], files, ids, ids, clock_went_back=went_back)
        assert [each.file_id.inode for each in missed] == expected


def test_dates_in_names_are_no_numbers_of_rotations() -> None:
    files = rotations(["20240131", "20240130", "2024"])
    ids = {FileId(1, 0)}
    assert missed_rotations([mark(0)], files, ids, ids, clock_went_back=True) == []


def test_the_fingerprint_sees_both_ends() -> None:
    assert len({fingerprint(b"a", b"b"), fingerprint(b"a", b"c"), fingerprint(b"d", b"b")}) == 3
