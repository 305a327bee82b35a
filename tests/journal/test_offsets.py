"""Which records a batch takes: offset maps over several epochs, as tables."""

from __future__ import annotations

import pytest

from penstock.errors import ConfigError, MissingBlockError
from penstock.journal import WriterEnd, advance, ranges_between
from penstock.journal.layout import WriterId, parse_block_start, parse_writer
from penstock.journal.offsets import is_finished
from penstock.model import OffsetRange

R0, R1, R2 = (WriterId("r", epoch) for epoch in range(3))
OTHER = WriterId("other", 0)


WRITERS = {"r0": R0, "r1": R1, "r2": R2, "other": OTHER}


def ends(**of: tuple[int, bool]) -> dict[WriterId, WriterEnd]:
    return {WRITERS[name]: WriterEnd(*end) for name, end in of.items()}


def names(**of: int) -> dict[str, int]:
    return {str(WRITERS[name]): end for name, end in of.items()}


# start, ends -> next
ADVANCE = {
    "nothing yet": ({}, ends(), {}),
    "a new writer": ({}, ends(r0=(5, False)), names(r0=5)),
    "an empty writer stays in the map": ({}, ends(r0=(0, False)), names(r0=0)),
    "more records": (names(r0=5), ends(r0=(9, False)), names(r0=9)),
    "sealed, but the only one": (names(r0=5), ends(r0=(5, True)), names(r0=5)),
    "sealed and taken, a later one there": (
        names(r0=5),
        ends(r0=(5, True), r1=(0, False)),
        names(r1=0),
    ),
    "sealed, with a rest to take": (
        names(r0=3),
        ends(r0=(5, True), r1=(2, False)),
        names(r0=5, r1=2),
    ),
    "taken, but not sealed yet": (
        names(r0=5),
        ends(r0=(5, False), r1=(0, False)),
        names(r0=5, r1=0),
    ),
    "sealed without ever a record: seen once, then left out": (
        names(r0=5),
        ends(r0=(5, True), r1=(0, True), r2=(1, False)),
        names(r1=0, r2=1),
    ),
    "finished before": (names(r1=2), ends(r0=(5, True), r1=(3, False)), names(r1=3)),
    "the map begins in the middle of epochs": (
        {},
        ends(r0=(5, True), r1=(3, True), r2=(1, False)),
        names(r0=5, r1=3, r2=1),
    ),
    "receivers do not finish each other": (
        names(other=4),
        ends(r0=(5, True), r1=(1, False), other=(4, True)),
        names(r0=5, r1=1, other=4),
    ),
}


@pytest.mark.parametrize("case", ADVANCE)
def test_advance(case: str) -> None:
    start, of, following = ADVANCE[case]
    assert advance(start, of) == following


@pytest.mark.parametrize("case", ADVANCE)
def test_advance_again_takes_nothing(case: str) -> None:
    start, of, _ = ADVANCE[case]
    once = advance(start, of)
    assert ranges_between(once, advance(once, of)) == []


def test_ranges_take_each_record_once() -> None:
    first = advance({}, ends(r0=(5, True), r1=(3, False)))
    second = advance(first, ends(r0=(5, True), r1=(4, True), r2=(2, False)))
    third = advance(second, ends(r1=(4, True), r2=(6, False)))
    assert ranges_between({}, first) == [OffsetRange(str(R0), 0, 5), OffsetRange(str(R1), 0, 3)]
    assert ranges_between(first, second) == [OffsetRange(str(R1), 3, 4), OffsetRange(str(R2), 0, 2)]
    assert ranges_between(second, third) == [OffsetRange(str(R2), 2, 6)]
    assert third == {str(R2): 6}


@pytest.mark.parametrize(
    "of", [ends(r0=(4, False)), ends(r0=(4, True), r1=(9, False)), ends(r1=(9, False)), ends()]
)
def test_a_journal_that_is_behind_the_offsets_is_refused(of: dict[WriterId, WriterEnd]) -> None:
    with pytest.raises(MissingBlockError) as caught:
        advance(names(r0=5), of)
    assert caught.value.ids["writer"] == str(R0)


def test_ranges_do_not_go_back() -> None:
    with pytest.raises(ConfigError, match="not ascending"):
        ranges_between(names(r0=5), names(r0=4))


def test_finished_is_who_was_left_out_behind_a_later_epoch() -> None:
    assert is_finished(R0, names(r1=0))
    assert is_finished(R0, names(r2=7))
    assert not is_finished(R0, names(r0=3, r1=0))
    assert not is_finished(R1, names(r1=0))
    assert not is_finished(R2, names(r1=0))
    assert not is_finished(R0, {})
    assert not is_finished(R0, names(other=9))


@pytest.mark.parametrize("receiver", ["r", "r-00000001", "a.b_c-d", "0"])
@pytest.mark.parametrize("epoch", [0, 7, 99_999_999, 100_000_000])
def test_a_writer_is_read_back_from_its_name(receiver: str, epoch: int) -> None:
    writer = WriterId(receiver, epoch)
    assert parse_writer(str(writer)) == writer


@pytest.mark.parametrize(
    "name",
    [
        "consumers",
        "control",
        "r-1",
        "r-0000001",
        "r-000000001",
        "-00000001",
        " -00000001",
        "r 1-00000001",
        "r-0000000\u0661",
        "r-00000001.bak",
    ],
)
def test_look_alikes_are_no_writers(name: str) -> None:
    assert parse_writer(name) is None


def test_block_names() -> None:
    assert parse_block_start("00000000000000000042.parquet") == 42
    for name in ["42.parquet", "00000000000000000042.parquet.bak", "_writer.json", "\u0660" * 20]:
        assert parse_block_start(name) is None
