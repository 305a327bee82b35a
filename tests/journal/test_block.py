"""Blocks: what goes in comes out, and every damaged byte is found."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DamagedBlockError
from penstock.journal import block as block_module
from penstock.journal.block import BlockFooter, encode_block, read_block, read_footer, tail_size
from penstock.journal.schema import RecordFormat

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def encode(
    records: list[Any], schema: Any = "string", start: int = 0, **options: Any
) -> tuple[bytes, BlockFooter]:
    record_format = RecordFormat(schema)
    footer = BlockFooter(start, len(records), options.pop("position", None))
    table = record_format.encode([record_format.encode_many(records)])
    return encode_block(table, footer, **options).to_pybytes(), footer


@given(
    records=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    start=st.integers(0, 10**19),
    position=JSON,
    compression=st.sampled_from(["none", "lz4", "snappy", "zstd"]),
)
def test_a_block_gives_back_its_records_and_its_footer(
    records: list[str], start: int, position: Any, compression: str
) -> None:
    data, footer = encode(records, start=start, position=position, compression=compression)
    found, parquet = read_block(data, "p")
    assert found == footer
    assert parquet.read().column(0).to_pylist() == records
    assert read_footer(data[-tail_size(data[-8:]) :], "p") == footer


@pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20])
def test_the_checksum_is_zlibs_also_with_the_extra_fast(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert block_module.crc32(memoryview(data)) == zlib.crc32(data)
    assert block_module.crc32(bytearray(data)) == zlib.crc32(data)


def test_a_block_takes_more_bytes_than_its_records_do_in_memory() -> None:
    narrow = pa.schema([("a", pa.int8())])  # Parquet has no type of less than 32 bits
    records = [{"a": number % 100} for number in range(100_000)]
    data, footer = encode(records, narrow)
    found, parquet = read_block(data, "p")
    assert len(data) > 300_000
    assert found == footer
    assert parquet.read().to_pylist() == records


SAMPLES = {
    "none": encode(["a", "bc", ""])[0],
    "lz4": encode(["a line"] * 9, compression="lz4", position={"file": 17})[0],
    "columns": encode([{"a": 1, "b": None}], pa.schema([("a", pa.int64()), ("b", pa.string())]))[0],
    "seal": encode([], start=7)[0],
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_flipped_bit_is_found(sample: str) -> None:
    data = SAMPLES[sample]
    missed = []
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            try:
                read_block(bytes(damaged), "p")
            except DamagedBlockError:
                continue
            missed.append((at, bit))
    assert not missed


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_truncation_and_every_extension_is_found(sample: str) -> None:
    data = SAMPLES[sample]
    whole = [data[:length] for length in range(len(data))]
    for damaged in [*whole, data + b"\0", b"\0" + data, data + data, data[1:]]:
        with pytest.raises(DamagedBlockError):
            read_block(damaged, "p")


def test_a_flipped_bit_in_the_footer_is_found_without_the_rest() -> None:
    tail = SAMPLES["none"][-tail_size(SAMPLES["none"][-8:]) :]
    for at in range(len(tail)):
        damaged = bytearray(tail)
        damaged[at] ^= 1
        with pytest.raises(DamagedBlockError):
            read_footer(bytes(damaged), "p")


def test_damage_names_the_file_and_what_helps() -> None:
    with pytest.raises(DamagedBlockError) as caught:
        read_block(b"no parquet at all", "file:///j/s/r0-00000000/00000000000000000000.parquet")
    assert caught.value.path == "file:///j/s/r0-00000000/00000000000000000000.parquet"
    assert "penstock journal verify" in str(caught.value)


def test_a_plain_parquet_file_is_no_block() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": ["a"]}), sink)
    with pytest.raises(DamagedBlockError, match="no penstock checksum"):
        read_block(sink.getvalue().to_pybytes(), "p")


def test_a_newer_version_asks_for_an_upgrade_whatever_else_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newer = json.dumps({"version": block_module.FORMAT_VERSION + 1, "first": 0}).encode()
    with monkeypatch.context() as patched:
        patched.setattr(block_module, "_dump_meta", lambda footer: newer)
        data, _ = encode(["a"])
    with pytest.raises(DamagedBlockError, match="newer than") as caught:
        read_block(data, "p")
    assert "upgrade" in str(caught.value)


def test_a_footer_that_counts_other_records_than_it_holds_is_refused() -> None:
    table = RecordFormat("string").encode([["a", "b"]])
    data = encode_block(table, BlockFooter(0, 3)).to_pybytes()
    with pytest.raises(DamagedBlockError, match="says 3 records, and it holds 2"):
        read_footer(data, "p")


@pytest.mark.parametrize("name", ["penstock.crc\x18\x11", "penstock", "PAR1", "", "ü"])
def test_column_names_and_positions_cannot_pass_for_the_checksum(name: str) -> None:
    schema = pa.schema([(name, pa.string())])
    text = "penstock.crc\x18\x1100000000:00000000"
    data, footer = encode([{name: text}], schema, position=text)
    found, parquet = read_block(data, "p")
    assert found == footer
    assert parquet.read().to_pylist() == [{name: text}]


def test_a_large_block_has_row_groups_of_about_8_mib_for_several_tasks() -> None:
    data, _ = encode(["x" * 1000] * 20_000)
    _, parquet = read_block(data, "p")
    sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
    assert len(sizes) == 2
    assert sum(sizes) == 20_000
    assert max(sizes) - min(sizes) <= 1


def test_other_readers_read_a_block_as_plain_parquet() -> None:
    data, _ = encode(["a", "b"], compression="zstd")
    assert pq.read_table(pa.BufferReader(data)).to_pydict() == {"value": ["a", "b"]}
