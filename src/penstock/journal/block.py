"""The block: one immutable Parquet file with its own checksums.

Invariants:

1. A block's footer carries the key ``penstock`` (JSON: version, start, count, position, sealed) and
   the key ``penstock.crc`` (two CRC-32 in hex: of all bytes before the footer, and of the footer to
   the end of file with its own eight digits read as zeros). Together they cover every byte.
2. ``position`` is the source's newest known position after the block's last record, carried on from
   earlier blocks when this one brought none: the newest file of a writer always has it.
3. A seal is a block of no records with ``sealed`` true.

Bytes are laid out in docs/journal-format.md.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import DamagedBlockError

__all__ = [
    "FORMAT_VERSION",
    "BlockFooter",
    "encode_block",
    "read_block",
    "read_footer",
    "tail_size",
]

FORMAT_VERSION = 1
_META = b"penstock"
_CRC = b"penstock.crc"
_UNSET = b"00000000:00000000"
# The key as Thrift's compact protocol lays it in the footer, up to its value: field header, length.
# JSON escapes control characters, so no position can look like it, and it stands after the schema.
_CRC_MARK = _CRC + bytes([0x18, len(_UNSET)])
_TRAILER = 8  # 4 bytes footer length, 4 bytes magic
_ROW_GROUP_BYTES = 8 << 20
"""Row groups of this size let several tasks share a large block."""


@dataclass(frozen=True, slots=True)
class BlockFooter:
    """What a block says of itself."""

    start_offset: int
    count: int
    position: Any = None
    sealed: bool = False

    @property
    def end_offset(self) -> int:
        """Offset after the block's last record."""
        return self.start_offset + self.count


def encode_block(table: pa.Table, footer: BlockFooter, *, compression: str = "none") -> pa.Buffer:
    """Return the bytes of a block with these records. ``footer.count`` must be ``table.num_rows``."""
    meta = {
        "version": FORMAT_VERSION,
        "start": footer.start_offset,
        "count": footer.count,
        "position": footer.position,
        "sealed": footer.sealed,
    }
    sink = pa.BufferOutputStream()
    # Dictionaries and statistics cost more than they give in files that are read once, in full.
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=compression,
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        rows = max(table.num_rows, 1)
        groups = max(1, round(table.nbytes / _ROW_GROUP_BYTES))
        writer.write_table(table, row_group_size=-(-rows // groups))
        writer.add_key_value_metadata(
            {_META: json.dumps(meta, separators=(",", ":")).encode(), _CRC: _UNSET}
        )
    data = sink.getvalue()
    _stamp(memoryview(data).cast("B"))
    return data


def tail_size(data: bytes) -> int:
    """Return how many bytes at the end of a block hold footer and trailer, given at least the last 8."""
    return int.from_bytes(data[-_TRAILER:-4], "little") + _TRAILER


def read_footer(tail: bytes, path: str) -> BlockFooter:
    """Parse and verify a block's footer from its last ``tail_size`` bytes (or more).

    Raises:
        DamagedBlockError: it is no block of this format, or the footer's checksum differs.
    """
    size = tail_size(tail)
    if len(tail) < max(size, _TRAILER + 4) or tail[-4:] != b"PAR1":
        _damaged(path, "it does not end as a Parquet file does")
    footer = bytearray(tail[-size:])
    _, wanted = _take_stamp(footer, path)
    if zlib.crc32(footer) != wanted:
        _damaged(path, "the footer's checksum differs")
    return _parse_meta(footer, path)


def read_block(data: bytes, path: str) -> tuple[BlockFooter, pq.ParquetFile]:
    """Verify a whole block and return its footer and an open Parquet file over its bytes.

    Raises:
        DamagedBlockError: a checksum differs, or the file cannot be parsed.
    """
    footer = read_footer(data, path)
    size = tail_size(data)
    wanted, _ = _take_stamp(bytearray(data[-size:]), path)
    if zlib.crc32(memoryview(data)[:-size]) != wanted:
        _damaged(path, "the checksum of its records differs")
    try:
        return footer, pq.ParquetFile(pa.BufferReader(data))
    except pa.ArrowException as e:
        _damaged(path, "it is no readable Parquet file", e)


def _stamp(data: memoryview) -> None:
    """Compute both checksums and write them over the placeholder, in place."""
    size = tail_size(bytes(data[-_TRAILER:]))
    footer = bytes(data[-size:])
    at = footer.rindex(_CRC_MARK) + len(_CRC_MARK)
    body = f"{zlib.crc32(data[:-size]):08x}:".encode()
    with_body = footer[:at] + body + footer[at + len(body) :]
    stamp = body + f"{zlib.crc32(with_body):08x}".encode()
    start = len(data) - size + at
    data[start : start + len(stamp)] = stamp


def _take_stamp(footer: bytearray, path: str) -> tuple[int, int]:
    """Return both checksums and put zeros in place of the footer's own."""
    at = footer.rfind(_CRC_MARK)
    start = at + len(_CRC_MARK)
    stamp = bytes(footer[start : start + len(_UNSET)])
    try:
        if at < 0:
            raise ValueError("no checksum key")
        body, own = (int(digits, 16) for digits in stamp.decode("ascii").split(":"))
    except ValueError as e:
        _damaged(path, "it carries no penstock checksum", e)
    footer[start + 9 : start + len(_UNSET)] = b"0" * 8
    return body, own


def _parse_meta(footer: bytearray, path: str) -> BlockFooter:
    try:
        # The footer alone is a readable Parquet "file" for metadata purposes once magic precedes it.
        metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + bytes(footer)))
        meta = json.loads(metadata.metadata[_META])
        version, count = meta["version"], meta["count"]
        found = BlockFooter(meta["start"], count, meta["position"], meta["sealed"])
    except (pa.ArrowException, KeyError, TypeError, ValueError, OSError) as e:
        _damaged(path, "its footer cannot be parsed", e)
    if version > FORMAT_VERSION:
        _damaged(path, f"it has format version {version}, newer than {FORMAT_VERSION}")
    if metadata.num_rows != count:
        _damaged(path, f"it says {count} records and holds {metadata.num_rows}")
    return found


def _damaged(path: str, why: str, cause: BaseException | None = None) -> NoReturn:
    raise DamagedBlockError(
        f"block is damaged: {why}",
        operation="read block",
        path=path,
        hint="run `penstock journal verify` on the journal, and restore the file from a copy",
    ) from cause
