"""Values that Arrow holds and Python does not: refused at the door, bad records where stored."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import BadRecordError, ConfigError, UnreadableRecordError
from penstock.journal import JournalStream, JournalWriter, RecordFormat, read_records
from penstock.journal.bad_records.parsing import Fail, ParseRecords, Refusal, parse_tasks
from penstock.journal.bad_records.raw_records import from_raw, to_raw
from penstock.journal.python_values import find_unreadable, temporal_columns
from penstock.journal.reader import read_batches
from penstock.model import OffsetRange
from penstock.storage import open_storage
from tests.cli.commands import Commands
from tests.journal.helpers import PATIENT, append_unchecked, memory_stream

WRITER = "r0-00000000"
LAST_DAY = 2_932_896  # 9999-12-31
LAST_S = 253_402_300_799
FIRST_S = -62_135_596_800


def values(kind: pa.DataType, *numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


GOOD = [
    values(pa.date32(), -719_162, LAST_DAY, None),
    values(pa.timestamp("s"), FIRST_S, LAST_S),
    values(pa.timestamp("us", "-12:00"), LAST_S * 1_000_000),
    values(pa.timestamp("ns", "UTC"), 1, 2**62),
    values(pa.time32("s"), 0, 86_399),
    values(pa.time64("ns"), 1_000),
    values(pa.duration("us"), 2**62, -(2**62)),
]
BAD = [
    values(pa.date32(), 0, None, LAST_DAY + 1),
    values(pa.date32(), 0, -719_163),
    values(pa.date64(), 0, (LAST_DAY + 1) * 86_400_000),
    values(pa.timestamp("s"), LAST_S, LAST_S + 1),
    values(pa.timestamp("us"), 0, FIRST_S * 1_000_000 - 1),
    values(pa.timestamp("us", "+14:00"), 0, LAST_S * 1_000_000),
    values(pa.timestamp("us", "Nowhere/Here"), None, 0),
    values(pa.time64("us"), 0, 86_400_000_000),
    values(pa.time64("ns"), 0, 1),
    values(pa.duration("s"), 0, 2**62),
]


def nested(array: pa.Array) -> Iterator[pa.Array]:
    """Yield an array, and arrays that hold one of its values in each row."""
    starts = pa.array(range(len(array) + 1), pa.int32())
    struct = pa.StructArray.from_arrays([array], ["x"])
    yield array
    yield struct
    yield pa.ListArray.from_arrays(starts, array)
    yield pa.LargeListArray.from_arrays(starts.cast(pa.int64()), struct)
    yield pa.FixedSizeListArray.from_arrays(array, 1)
    yield pa.MapArray.from_arrays(starts, pa.array(map(str, range(len(array)))), array)


def found_in(array: pa.Array) -> Any:
    table = pa.table({"n": pa.nulls(len(array)), "a": array})
    return find_unreadable(table, temporal_columns(table.schema))


@pytest.mark.parametrize("before", [0, 100], ids=["few", "many"])
@pytest.mark.parametrize("array", GOOD, ids=lambda array: str(array.type))
def test_what_python_holds_is_let_in(array: pa.Array, before: int) -> None:
    for each in nested(pa.concat_arrays([array.slice(0, 1)] * before + [array])):
        assert found_in(each) is None
        if not pa.types.is_time(array.type):  # pandas knows nanoseconds; PyArrow drops a time's
            each.to_pylist()


@pytest.mark.parametrize("before", [0, 100], ids=["few", "many"])
@pytest.mark.parametrize("array", BAD, ids=lambda array: str(array.type))
def test_what_python_does_not_hold_is_found_at_any_depth(array: pa.Array, before: int) -> None:
    shown = set()
    row = before + len(array) - 1
    for each in nested(pa.concat_arrays([array.slice(0, 1)] * before + [array])):
        found = found_in(each)
        assert (found.row, found.column) == (row, "a"), each.type
        assert found_in(each.slice(0, row)) is None  # the slice alone counts
        assert found_in(each.slice(row)).row == 0
        shown.add(found.value)
    assert len(shown) == 1  # the value itself, whatever it is in


def test_what_a_null_hides_is_no_value() -> None:
    array = values(pa.date32(), 0, LAST_DAY + 1)
    hidden = pa.StructArray.from_arrays([array], ["x"], mask=pa.array([False, True]))
    assert found_in(hidden) is None


DAYS = pa.schema([("n", pa.int64()), ("d", pa.date32())])
DAY = date(2026, 1, 1)


def days(*numbers: int) -> pa.Table:
    return pa.table({"n": range(len(numbers)), "d": values(pa.date32(), *numbers)}, schema=DAYS)


def test_the_door_names_row_column_and_value() -> None:
    stream = memory_stream(DAYS)
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append({"n": 1, "d": DAY})
    named = "row {}: column 'd' holds 10000-01-01"
    with pytest.raises(ConfigError, match=named.format(0)):
        writer.append({"n": 2, "d": LAST_DAY + 1})
    with pytest.raises(ConfigError, match=named.format(1)):
        writer.append_all([{"n": 2, "d": DAY}, {"n": 2, "d": LAST_DAY + 1}])
    with pytest.raises(ConfigError, match=named.format(2)):
        writer.append_all(days(0, 1, LAST_DAY + 1))
    with pytest.raises(ConfigError, match=named.format(2)):
        writer.append_all(days(0, 1, LAST_DAY + 1).to_batches()[0])
    writer.append({"n": 3, "d": DAY})
    writer.close()
    assert list(read_records(stream, [OffsetRange(WRITER, 0, 2)])) == [
        {"n": 1, "d": DAY},
        {"n": 3, "d": DAY},
    ]


ROWS = 10_000
POISON = (0, 4_096, 4_097, 9_999)
ALL = OffsetRange(WRITER, 0, ROWS)


@pytest.fixture
def poisoned() -> JournalStream:
    """A stream as a writer that is not penstock's may store it, in two blocks."""
    stream = memory_stream(DAYS)
    table = days(*(LAST_DAY + 1 if row in POISON else 0 for row in range(ROWS)))
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    for part in (table.slice(0, 6_000), table.slice(6_000)):
        append_unchecked(writer, part.set_column(0, "n", [list(range(part.num_rows))]))
        writer.flush()
    writer.close()
    return stream


def test_arrow_readers_have_it(poisoned: JournalStream) -> None:
    assert sum(batch.num_rows for batch in read_batches(poisoned, [ALL])) == ROWS


def test_a_reader_of_objects_names_it(poisoned: JournalStream) -> None:
    with pytest.raises(UnreadableRecordError) as caught:
        list(read_records(poisoned, [ALL]))
    said = str(caught.value)
    assert "column 'd' holds 10000-01-01" in said
    assert f"{WRITER}/00000000000000000000.parquet" in said
    assert "offset=0" in said
    assert "date value out of range" in said
    assert "parse makes a bad record of it" in said


class Told:
    def __init__(self) -> None:
        self.refused: list[Refusal] = []

    def __call__(
        self, stream: JournalStream, cell: OffsetRange, refused: Sequence[Refusal]
    ) -> None:
        self.refused += refused


def test_for_parse_it_is_a_bad_record_and_its_neighbours_are_good(poisoned: JournalStream) -> None:
    told = Told()
    tasks = parse_tasks(poisoned, [ALL], 3)
    run = ParseRecords(poisoned, lambda row: row["d"], told)
    assert list(run(tasks)) == [date(1970, 1, 1)] * (ROWS - len(POISON))
    assert tuple(refusal.offset for refusal in told.refused) == POISON
    assert "column 'd' holds 10000-01-01" in told.refused[0].error_text
    again = from_raw(poisoned.format, [refusal.raw for refusal in told.refused])
    assert again.column("d").cast(pa.int32()).to_pylist() == [LAST_DAY + 1] * len(POISON)
    with pytest.raises(BadRecordError, match=r"record 0 of writer r0-00000000.*10000-01-01"):
        list(ParseRecords(poisoned, lambda row: row, Fail())(tasks))


class OutOfMemory:
    def __reduce__(self) -> Any:
        return _exhaust, ()


class Gone:
    def __reduce__(self) -> Any:
        return _gone, ()


def _exhaust() -> None:
    raise MemoryError


def _gone() -> None:
    raise AttributeError("Can't get attribute 'Gone'")


def objects(*records: Any) -> JournalStream:
    stream = memory_stream("pickle")
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    writer.append_all(records)
    writer.close()
    return stream


def parsed(stream: JournalStream, count: int, told: Told) -> list[Any]:
    run = ParseRecords(stream, str, told)
    return list(run(parse_tasks(stream, [OffsetRange(WRITER, 0, count)], 1)))


def test_a_pickle_that_cannot_be_loaded_is_a_bad_record() -> None:
    stream, told = objects(1, Gone(), 3), Told()
    assert parsed(stream, 3, told) == ["1", "3"]
    assert [refusal.offset for refusal in told.refused] == [1]
    assert pickle.loads(to_raw(stream.format, next(read_batches(stream, [_range(1)])), 0)) == 1
    with pytest.raises(UnreadableRecordError, match="importable again"):
        list(read_records(stream, [_range(3)]))


def _range(count: int) -> OffsetRange:
    return OffsetRange(WRITER, 0, count)


def test_what_says_nothing_of_a_record_fails_the_read() -> None:
    stream = objects(1, OutOfMemory())
    with pytest.raises(MemoryError):
        parsed(stream, 2, Told())
    with pytest.raises(MemoryError):
        list(read_records(stream, [_range(2)]))
    untrusted = JournalStream.open(stream.storage, stream.name)
    with pytest.raises(ConfigError, match="allow_pickle"):
        parsed(untrusted, 2, Told())
    with pytest.raises(ConfigError, match="allow_pickle"):
        list(read_records(untrusted, [_range(2)]))


def test_cat_shows_it(tmp_path: Any) -> None:
    stream = JournalStream.create(open_storage(tmp_path), "days", RecordFormat(DAYS))
    writer = JournalWriter(stream, "r0", policy=PATIENT)
    append_unchecked(writer, days(0, LAST_DAY + 1))
    writer.close()
    lines = Commands("journal").run("cat", str(tmp_path), "days").output.splitlines()
    assert lines == ['{"n": 0, "d": "1970-01-01"}', '{"n": 1, "d": "10000-01-01"}']
