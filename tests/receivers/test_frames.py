"""Records after their length: any cut of the stream gives the same records."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError, ReceiverError
from penstock.receivers.frames import RECORDS_SCHEMA, FrameSplitter

Order = Literal["big", "little"]

RECORDS = st.lists(st.one_of(st.binary(max_size=20), st.integers(0, 255).map(bytes)), max_size=20)
ORDERS: list[Order] = ["big", "little"]


def framed(records: list[bytes], length_bytes: int = 4, byteorder: Order = "big") -> bytes:
    return b"".join(len(r).to_bytes(length_bytes, byteorder) + r for r in records)


def split(splitter: FrameSplitter, chunks: list[bytes]) -> list[bytes]:
    batches = [batch for chunk in chunks for batch in splitter.feed(chunk)]
    assert all(batch.schema == RECORDS_SCHEMA for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [record for batch in batches for record in batch.column(0).to_pylist()]


@given(RECORDS, st.sampled_from([1, 2, 4, 8]), st.sampled_from(ORDERS), st.data())
def test_any_cut_gives_the_records(
    records: list[bytes], length_bytes: int, byteorder: Order, data: st.DataObject
) -> None:
    stream = framed(records, length_bytes, byteorder)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    splitter = FrameSplitter(length_bytes, byteorder)

    assert split(splitter, chunks) == records
    assert list(splitter.finish()) == []


@given(RECORDS, st.binary(min_size=1, max_size=50))
def test_a_torn_end_loses_only_the_torn_record(records: list[bytes], last: bytes) -> None:
    whole = framed(records)
    splitter = FrameSplitter()
    cut = framed([last])[:-1]

    assert split(splitter, [whole, cut]) == records
    with pytest.raises(ReceiverError, match="ended within a record"):
        list(splitter.finish())


@given(st.binary(max_size=300), st.integers(1, 64))
def test_no_bytes_take_more_memory_than_the_limit(noise: bytes, limit: int) -> None:
    splitter = FrameSplitter(max_record_bytes=limit)
    try:
        records = split(splitter, [noise[i : i + 7] for i in range(0, len(noise), 7)])
    except ReceiverError:
        return
    assert all(len(record) <= limit for record in records)
    assert len(splitter._unfinished) <= limit + 4


def test_records_before_one_that_is_too_long_are_out_before_the_error() -> None:
    splitter = FrameSplitter(max_record_bytes=3)
    chunks = splitter.feed(framed([b"a", b"bcd", b"long"]))
    assert next(chunks).column(0).to_pylist() == [b"a", b"bcd"]
    with pytest.raises(ReceiverError, match="4 bytes is longer than 3"):
        next(chunks)


def test_a_long_record_in_small_chunks() -> None:
    record = bytes(range(256)) * 4096
    stream = framed([record, b"", record])
    chunks = [stream[i : i + 1000] for i in range(0, len(stream), 1000)]
    assert split(FrameSplitter(), chunks) == [record, b"", record]


@pytest.mark.parametrize(
    "wrong",
    [{"length_bytes": 3}, {"byteorder": "middle"}, {"max_record_bytes": 0}],
)
def test_bad_arguments_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FrameSplitter(**wrong)
