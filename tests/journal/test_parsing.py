"""Parsing in tasks, without Spark: values, cells, and what is told of refused records."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import chain

import pytest

from penstock.errors import BadRecordError, DamagedBlockError
from penstock.journal import JournalStream
from penstock.journal.bad_records.parsing import (
    AddRefusals,
    Drop,
    Fail,
    ParseRecords,
    Refusal,
    Refusals,
    parse_tasks,
)
from penstock.journal.losses.skip import skip
from penstock.model import OffsetRange
from tests.journal.helpers import path_of, rewrite, write_blocks

BLOCKS = [700, 1, 0, 1299, 3000]
"""Records in each block, so that blocks and cells of 256 do not begin together."""
WANTED = OffsetRange("r0-00000000", 100, 4500)


@pytest.fixture
def numbers(stream: JournalStream) -> JournalStream:
    starts = [sum(BLOCKS[:place]) for place in range(len(BLOCKS))]
    write_blocks(
        stream,
        [
            [str(n) for n in range(start, start + count)]
            for start, count in zip(starts, BLOCKS, strict=True)
        ],
    )
    return stream


def parse(record: str) -> int:
    number = int(record)
    if number % 500 == 7:
        raise StopIteration if number == 1007 else ValueError(f"no {number}")
    return number


class Told:
    """Keeps what was refused, by cell."""

    def __init__(self) -> None:
        self.cells: list[tuple[OffsetRange, list[tuple[int, bytes]]]] = []

    def __call__(
        self, stream: JournalStream, cell: OffsetRange, refused: Sequence[Refusal]
    ) -> None:
        self.cells.append((cell, [(refusal.offset, refusal.raw) for refusal in refused]))


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 16])
def test_values_and_cells_do_not_depend_on_the_tasks(numbers: JournalStream, slots: int) -> None:
    told = Told()
    run = ParseRecords(numbers, parse, told)
    tasks = parse_tasks(numbers, [WANTED], slots)
    assert len(tasks) <= slots
    values = list(chain.from_iterable(run([task]) for task in tasks))
    bad = [n for n in range(100, 4500) if n % 500 == 7]
    assert values == [n for n in range(100, 4500) if n not in bad]
    assert [(at, raw) for _, refused in told.cells for at, raw in refused] == [
        (n, str(n).encode()) for n in bad
    ]
    for cell, refused in told.cells:
        assert (cell.start_offset - WANTED.start_offset) % 256 == 0
        assert cell.end_offset == min(cell.start_offset + 256, WANTED.end_offset)
        assert all(cell.start_offset <= at < cell.end_offset for at, _ in refused)


def test_a_cell_is_told_whole_before_its_first_value(numbers: JournalStream) -> None:
    told = Told()
    values = ParseRecords(numbers, parse, told)(parse_tasks(numbers, [WANTED], 1))
    while next(values) != 356:  # the second cell's first record
        pass
    assert told.cells == [(OffsetRange("r0-00000000", 356, 612), [(507, b"507")])]


def test_offsets_are_right_around_what_was_given_up(numbers: JournalStream) -> None:
    path = path_of(numbers, numbers.writers()[0], 701)
    rewrite(numbers.storage, path, numbers.storage.read(path)[:-1])
    with pytest.raises(DamagedBlockError, match="701-2000"):
        list(ParseRecords(numbers, parse, Told())(parse_tasks(numbers, [WANTED], 2)))
    skip(numbers, OffsetRange("r0-00000000", 701, 2000), "damaged")
    told = Told()
    values = list(ParseRecords(numbers, parse, told)(parse_tasks(numbers, [WANTED], 2)))
    left = [n for n in range(100, 4500) if not 701 <= n < 2000]
    assert values == [n for n in left if n % 500 != 7]
    cells = [cell.start_offset for cell, _ in told.cells]
    assert all((start - 100) % 256 == 0 for start in cells)  # as if nothing were given up


def test_failing_names_the_first_record(numbers: JournalStream) -> None:
    tasks = parse_tasks(numbers, [WANTED], 1)
    with pytest.raises(BadRecordError, match="record 507 of writer r0-00000000: ValueError: no"):
        list(ParseRecords(numbers, parse, Fail())(tasks))


def test_running_out_of_memory_is_not_the_records_fault(numbers: JournalStream) -> None:
    def exhaust(record: str) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        list(ParseRecords(numbers, exhaust, Told())(parse_tasks(numbers, [WANTED], 1)))


def test_a_cell_that_is_parsed_twice_counts_once(numbers: JournalStream) -> None:
    found: dict[OffsetRange, Refusals] = {}

    class Tally:
        def add(self, term: dict[OffsetRange, Refusals]) -> None:
            AddRefusals().addInPlace(found, term)

    run = ParseRecords(numbers, parse, Drop(Tally()))
    for _ in range(2):
        list(run(parse_tasks(numbers, [WANTED], 2)))
    assert sum(refusals.count for refusals in found.values()) == 8


def test_what_an_error_says_is_bounded_and_on_one_line() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    long = Refusal(0, ValueError("a\nb\ud800" + "c" * 9999), b"x" * 200)
    assert len(long.error_text) < 1010
    assert str(long).startswith(r"ValueError: a\nb")
    assert "\n" not in str(long)
    assert long.excerpt.endswith("'... (200 bytes)")
    assert "its text is not available: RuntimeError" in Refusal(0, MuteError(), b"").error_text
    assert Refusal(0, pickle.PickleError("x"), b"").error_type == "_pickle.PickleError"
