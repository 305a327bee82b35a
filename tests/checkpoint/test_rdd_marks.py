"""Marks of RDD checkpoints: exact files, found by operator and time, never changed."""

from __future__ import annotations

import pytest

from penstock.checkpoint.rdd_marks import RddMark, RddMarks
from penstock.errors import ConcurrentDriverError, LogFormatError, NotFoundError
from penstock.storage import Storage

MARK = RddMark("updateStateByKey", {"windowMs": 5000}, "run/rdd-7", (120, 0))
TEXT = (
    'v1\n{"kind":"updateStateByKey","shape":{"windowMs":5000},"file":"run/rdd-7","sizes":[120,0]}'
)


@pytest.mark.parametrize("mark", [MARK, RddMark("kind")])
def test_a_mark_is_read_as_it_was_written(storage: Storage, mark: RddMark) -> None:
    marks = RddMarks(storage)
    marks.add("counts", 1000, mark)
    marks.add("counts", 1000, mark)
    assert marks.get("counts", 1000) == mark


def test_format(storage: Storage) -> None:
    RddMarks(storage).add("counts", 1000, MARK)
    assert storage.read("rdds/marks/counts/1000").decode() == TEXT


def test_marks_are_found_by_operator_in_order_of_time(storage: Storage) -> None:
    marks = RddMarks(storage)
    for operator, time_ms in [("a", 2000), ("a", 10_000), ("a", 0), ("b", 5)]:
        marks.add(operator, time_ms, MARK)
    storage.create("rdds/marks/a/05", b"not a mark")
    assert marks.operators() == ["a", "b"]
    assert marks.times_ms("a") == [0, 2000, 10_000]
    marks.delete("a", 2000)
    marks.delete("a", 2000)
    assert marks.times_ms("a") == [0, 10_000]
    assert marks.times_ms("none") == []
    with pytest.raises(NotFoundError):
        marks.get("a", 2000)


def test_another_mark_for_the_same_time_is_refused(storage: Storage) -> None:
    marks = RddMarks(storage)
    marks.add("counts", 1000, MARK)
    with pytest.raises(ConcurrentDriverError, match="counts"):
        marks.add("counts", 1000, RddMark("updateStateByKey"))


FIELDS = '"kind":"k","shape":{},"file":%s,"sizes":%s'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (TEXT.replace("v1", "v2"), "newer version"),
        (TEXT + "\n{}", "2 lines"),
        (TEXT[:-10], "not JSON"),
        (TEXT.replace('"kind":"updateStateByKey",', ""), "just the fields"),
        ("v1\n{%s}" % (FIELDS % ("null", "[1]")), "not a mark"),
        ("v1\n{%s}" % (FIELDS % ('"f"', "[-1]")), "not a mark"),
    ],
)
def test_a_damaged_mark_is_named(storage: Storage, text: str, reason: str) -> None:
    storage.create("rdds/marks/counts/1000", text.encode())
    with pytest.raises(LogFormatError, match=reason) as caught:
        RddMarks(storage).get("counts", 1000)
    assert caught.value.path == storage.uri("rdds/marks/counts/1000")
