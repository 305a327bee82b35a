"""Reading: any range is the slice of all records, and what is missing or damaged is named."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DamagedBlockError, MissingBlockError
from penstock.journal import JournalStream, read_batches, read_records
from penstock.journal import block as block_module
from penstock.journal.reader import read_slices, slice_ranges
from penstock.journal.slices import BlockSlice, pack_slices, small_task_count, task_count
from penstock.model import OffsetRange
from penstock.storage import Storage
from tests.journal.helpers import memory_stream, path_of, rewrite, whole_range, write_blocks
from tests.storage.faulty_storage import FaultyStorage

SIZES = [1, 4, 1, 7, 2]
RECORDS = [f"record {number}" for number in range(sum(SIZES))]


def blocks_of(sizes: list[int], records: list[str]) -> list[list[str]]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [records[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@pytest.fixture(params=["blocks of one row group", "blocks of many row groups"])
def any_stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> JournalStream:
    if "many" in request.param:
        monkeypatch.setattr(block_module, "_ROW_GROUP_BYTES", 40)
    stream = memory_stream()
    write_blocks(stream, blocks_of(SIZES, RECORDS))
    return stream


def test_any_range_is_the_slice(any_stream: JournalStream) -> None:
    (writer,) = any_stream.writers()
    for start in range(len(RECORDS) + 1):
        for end in range(start, len(RECORDS) + 1):
            wanted = OffsetRange(str(writer), start, end)
            assert list(read_records(any_stream, [wanted])) == RECORDS[start:end]


def test_batches_have_the_streams_schema(any_stream: JournalStream) -> None:
    (writer,) = any_stream.writers()
    batches = list(read_batches(any_stream, [OffsetRange(str(writer), 2, 12)]))
    assert all(batch.schema == any_stream.format.arrow for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 10


def test_ranges_of_several_writers_come_in_their_order() -> None:
    stream = memory_stream()
    a = write_blocks(stream, [["a0", "a1"], ["a2"]], receiver="a")
    b = write_blocks(stream, [["b0"]], receiver="b")
    ranges = [OffsetRange(str(b), 0, 1), OffsetRange(str(a), 1, 3), OffsetRange(str(a), 0, 0)]
    assert list(read_records(stream, ranges)) == ["b0", "a1", "a2"]


def test_a_large_block_is_read_a_row_group_at_a_time() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, [["x" * 1000] * 20_000])
    sizes = [batch.num_rows for batch in read_batches(stream, [whole_range(stream, writer)])]
    assert len(sizes) > 1
    assert sum(sizes) == 20_000


@pytest.mark.parametrize(
    ("removed", "needed", "gap"),
    [
        (0, (0, 15), (0, 1)),  # the first
        (0, (0, 1), (0, 1)),
        (1, (0, 15), (1, 5)),  # one in the middle
        (1, (2, 4), (2, 4)),
        (1, (4, 15), (4, 5)),
        (6, (0, 15), (6, 13)),
        (13, (0, 15), (13, 15)),  # the last
        (13, (14, 15), (14, 15)),
    ],
)
def test_a_missing_block_is_named_with_what_is_missed(
    removed: int, needed: tuple[int, int], gap: tuple[int, int]
) -> None:
    stream = memory_stream()
    writer = write_blocks(stream, blocks_of(SIZES, RECORDS))
    stream.storage.delete(path_of(stream, writer, removed))
    with pytest.raises(MissingBlockError) as caught:
        list(read_records(stream, [OffsetRange(str(writer), *needed)]))
    assert f"[{gap[0]}, {gap[1]})" in caught.value.message
    assert "penstock journal verify" in str(caught.value)


def test_what_is_there_around_a_missing_block_can_be_read() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, blocks_of(SIZES, RECORDS))
    stream.storage.delete(path_of(stream, writer, 5))
    for start, end in [(0, 1), (0, 5), (3, 5), (6, 15)]:
        wanted = OffsetRange(str(writer), start, end)
        assert list(read_records(stream, [wanted])) == RECORDS[start:end]


def test_a_block_that_goes_while_it_is_read_is_named(storage: Storage) -> None:
    stream = memory_stream()
    writer = write_blocks(stream, blocks_of(SIZES, RECORDS))
    slices = slice_ranges(stream, [whole_range(stream, writer)])
    stream.storage.delete(path_of(stream, writer, 6))
    reading = read_slices(stream, slices)
    with pytest.raises(MissingBlockError, match=r"\[6, 13\)"):
        list(reading)


@pytest.mark.parametrize("end", [16, 1000])
def test_records_beyond_the_end_are_not_there_yet(end: int) -> None:
    for close in (True, False):
        stream = memory_stream()
        writer = write_blocks(stream, blocks_of(SIZES, RECORDS), close=close)
        with pytest.raises(MissingBlockError, match=r"\[15, "):
            list(read_records(stream, [OffsetRange(str(writer), 3, end)]))


def test_an_unknown_writer_has_nothing() -> None:
    with pytest.raises(MissingBlockError, match="no block of this writer"):
        list(read_records(memory_stream(), [OffsetRange("r9-00000000", 0, 1)]))


def test_a_damaged_block_fails_after_the_ones_before_it() -> None:
    clean = memory_stream()
    writer = write_blocks(clean, blocks_of(SIZES, RECORDS))
    faulty = FaultyStorage(clean.storage)
    stream = JournalStream(faulty, clean.name, clean.format)
    faulty.damage(path_of(stream, writer, 6), flip_at=10)
    found: list[str] = []
    with pytest.raises(DamagedBlockError) as caught:
        found.extend(read_records(stream, [whole_range(clean, writer)]))
    assert found == RECORDS[:6]
    assert caught.value.path is not None
    assert caught.value.path.endswith("00000000000000000006.parquet")


def test_a_block_under_another_name_is_refused() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, [["a"], ["b"], ["c"]])
    data = stream.storage.read(path_of(stream, writer, 0))
    rewrite(stream.storage, path_of(stream, writer, 1), data)
    with pytest.raises(DamagedBlockError, match="which does not match its name"):
        list(read_records(stream, [whole_range(stream, writer)]))


def test_a_block_that_reaches_into_the_next_is_refused() -> None:
    stream = memory_stream()
    writer = write_blocks(stream, [["a", "b"], ["c"]])
    other = write_blocks(memory := memory_stream(), [["a", "b", "c"]])
    data = memory.storage.read(path_of(memory, other, 0))
    rewrite(stream.storage, path_of(stream, writer, 0), data)
    with pytest.raises(DamagedBlockError, match="which does not match its name"):
        list(read_records(stream, [whole_range(stream, writer)]))


# -- sharing slices out over tasks --


def offsets_of(slices: Iterable[BlockSlice]) -> list[int]:
    return [o for part in slices for o in range(part.start_offset, part.end_offset)]


@given(
    counts=st.lists(st.integers(1, 50), max_size=30),
    cut=st.integers(0, 40),
    max_tasks=st.integers(1, 12),
)
def test_tasks_share_all_slices_in_order(counts: list[int], cut: int, max_tasks: int) -> None:
    slices, at = [], 0
    for count in counts:
        slices.append(BlockSlice(f"s/w/{at}", at, at + count, 9, at, at + count))
        at += count
    if slices and cut < slices[0].count:
        slices[0] = BlockSlice("s/w/0", 0, counts[0], 9, cut, counts[0])
    tasks = pack_slices(slices, max_tasks)
    offsets = [
        o for task in tasks for part in task for o in range(part.start_offset, part.end_offset)
    ]
    assert offsets == [o for part in slices for o in range(part.start_offset, part.end_offset)]
    assert len(tasks) <= max_tasks
    sizes = [sum(part.count for part in task) for task in tasks]
    assert len(set(sizes[:-1])) <= 1
    assert all(size > 0 for size in sizes)
    names = {(part.path, part.block_start, part.block_end) for part in slices}
    assert {(p.path, p.block_start, p.block_end) for task in tasks for p in task} == names


@pytest.mark.parametrize(
    ("megabytes", "tasks"), [([], 3), ([1], 3), ([16], 4), ([16, 16], 8), ([16] * 9, 12)]
)
def test_much_data_is_read_by_several_tasks_a_slot(megabytes: list[int], tasks: int) -> None:
    slices = [BlockSlice(f"s/w/{n}", 0, 9, size << 20, 0, 9) for n, size in enumerate(megabytes)]
    assert task_count(slices, 3) == tasks


@pytest.mark.parametrize(
    ("blocks", "kilobytes", "remote", "tasks"),
    [
        (9, 3, False, 1),
        (200, 3, False, 2),
        (10_000, 3, False, 8),
        (200, 100, False, 4),
        (9, 3, True, 8),
    ],
)
def test_tiny_blocks_are_read_by_few_tasks(
    blocks: int, kilobytes: int, remote: bool, tasks: int
) -> None:
    slices = [BlockSlice(f"s/w/{n}", 0, 9, kilobytes << 10, 0, 9) for n in range(blocks)]
    assert small_task_count(slices, 8, remote=remote) == tasks


def test_a_stream_pickles_small(stream: JournalStream) -> None:
    write_blocks(stream, [["a"]])
    data = pickle.dumps(stream)
    assert len(data) < 2000
    copy = pickle.loads(data)
    assert copy.name == stream.name
    assert copy.format == stream.format
    assert list(read_records(copy, [whole_range(copy, copy.writers()[0])])) == ["a"]
