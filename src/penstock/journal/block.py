"""The block: one immutable Parquet file with its own checksums.

Invariants:

1. A block's footer carries the key ``penstock`` (JSON: version, start, count, position, sealed) and
   the key ``penstock.crc`` (two CRC-32 in hex: of all bytes before the footer, and of the footer to
   the end of file with its own eight digits read as zeros). Together they cover every byte.
2. ``position`` is the source's newest known position after the block's last record. A block without
   a new position repeats that of earlier blocks and epochs: the newest file of a writer always has
   it.
3. A seal is a block of no records with ``sealed`` true.

Bytes are laid out in docs/journal-format.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import DamagedBlockError, NewerBlockError

try:  # extra `fast`: the same CRC-32, by instructions of the processor, in a sixth of the time
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

FORMAT_VERSION = 1
_META = b"penstock"
_CRC = b"penstock.crc"
_UNSET = b"00000000:00000000"
# The key as Thrift's compact protocol encodes it in the footer, up to its value: field header,
# length. JSON escapes control characters, so no position can contain it, and it comes after the
# schema.
_CRC_MARK = _CRC + bytes([0x18, len(_UNSET)])
_MAGIC = b"PAR1"
_TRAILER = 8  # 4 bytes footer length, 4 bytes magic
_PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError)
_ROW_GROUP_BYTES = 8 << 20
"""Row groups of this size let several tasks share a large block."""
_SLACK_BYTES = 64 << 10
"""The size that Parquet adds to the records: headers, the footer with schema and position."""


@dataclass(frozen=True, slots=True)
class BlockFooter:
    """The content of a block's footer."""

    start_offset: int
    count: int
    position: Any = None
    sealed: bool = False

    @property
    def end_offset(self) -> int:
        """Offset after the block's last record."""
        return self.start_offset + self.count


def encode_block(table: pa.Table, footer: BlockFooter, *, compression: str = "none") -> pa.Buffer:
    """Return the bytes of a block that holds ``table``, of ``footer.count`` rows.

    Raises:
        pyarrow.ArrowException: Parquet cannot hold the table.
    """
    # Memory allocated at once: growth by doubling, as in the other sink, costs a third of the time.
    data = pa.allocate_buffer(table.nbytes + _SLACK_BYTES)
    sink = pa.FixedSizeBufferWriter(data)
    try:
        _write_parquet(sink, table, footer, compression)
        size = sink.tell()
    except OSError:  # it is too small: Parquet stores some types wider than Arrow, int8 in 32 bits
        sink = pa.BufferOutputStream()
        _write_parquet(sink, table, footer, compression)
        data = sink.getvalue()
        size = data.size
    _stamp(memoryview(data).cast("B")[:size])
    return data.slice(0, size)


def tail_size(data: bytes) -> int:
    """Return the size of footer and trailer, given at least the last 8 bytes of a block."""
    return int.from_bytes(data[-_TRAILER:-4], "little") + _TRAILER


def read_footer(tail: bytes, path: str) -> BlockFooter:
    """Parse and verify a block's footer from its last ``tail_size`` bytes (or more).

    Raises:
        DamagedBlockError: it is not a block of this format, or the footer's checksum differs.
    """
    _, metadata = _verify_tail(tail, path)
    return _parse_meta(metadata, path)


def read_block(data: bytes, path: str) -> tuple[BlockFooter, pq.ParquetFile]:
    """Verify a whole block and return its footer and an open Parquet file over its bytes.

    Raises:
        DamagedBlockError: a checksum differs, or the file cannot be parsed.
        NewerBlockError: a newer version wrote it.
    """
    body_crc, metadata = _verify_tail(data, path)
    if _hex(crc32(memoryview(data)[: -tail_size(data)])) != body_crc:
        _damaged(path, "the checksum of its records differs")
    footer = _parse_meta(metadata, path)
    try:
        return footer, pq.ParquetFile(pa.BufferReader(data), metadata=metadata)
    except _PARQUET_ERRORS as e:
        _damaged(path, "it is not a readable Parquet file", e)


def _write_parquet(
    sink: pa.NativeFile, table: pa.Table, footer: BlockFooter, compression: str
) -> None:
    # Dictionaries and statistics do not pay off in files that are read once, in full.
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
        writer.add_key_value_metadata({_META: _dump_meta(footer), _CRC: _UNSET})


def _dump_meta(footer: BlockFooter) -> bytes:
    meta = {
        "version": FORMAT_VERSION,
        "start": footer.start_offset,
        "count": footer.count,
        "position": footer.position,
        "sealed": footer.sealed,
    }
    return json.dumps(meta, separators=(",", ":")).encode()


def _stamp(data: memoryview) -> None:
    """Compute both checksums and write them over the placeholder, in place."""
    size = tail_size(bytes(data[-_TRAILER:]))
    footer = bytearray(data[-size:])
    at = footer.rindex(_CRC_MARK) + len(_CRC_MARK)
    footer[at : at + 8] = _hex(crc32(data[:-size]))
    footer[at + 9 : at + 17] = _hex(crc32(footer))
    data[-size:] = footer


def _verify_tail(data: bytes, path: str) -> tuple[bytes, pq.FileMetaData]:
    """Verify the footer at the end of ``data``.

    Returns:
        The checksum, in hex, that the bytes before the footer must have; the Parquet metadata.
    """
    size = tail_size(data)
    if not _TRAILER < size <= len(data) or data[-4:] != _MAGIC:
        _damaged(path, "it does not end like a Parquet file")
    footer = bytearray(data[-size:])
    at = footer.rfind(_CRC_MARK) + len(_CRC_MARK)
    if at < len(_CRC_MARK):
        _damaged(path, "it has no penstock checksum")
    body_crc, own_crc = bytes(footer[at : at + 8]), bytes(footer[at + 9 : at + 17])
    footer[at + 9 : at + 17] = _UNSET[9:]
    if _hex(crc32(footer)) != own_crc:
        _damaged(path, "the footer's checksum differs")
    try:
        # Parquet's own metadata parser accepts a footer as a file if the magic precedes it.
        return body_crc, pq.read_metadata(pa.BufferReader(_MAGIC + bytes(data[-size:])))
    except _PARQUET_ERRORS as e:
        _damaged(path, "its footer cannot be parsed", e)


def _parse_meta(metadata: pq.FileMetaData, path: str) -> BlockFooter:
    try:
        meta = json.loads(metadata.metadata[_META])
        if meta["version"] > FORMAT_VERSION:
            _newer(path, meta["version"])
        found = BlockFooter(meta["start"], meta["count"], meta["position"], meta["sealed"])
    except (KeyError, TypeError, ValueError) as e:
        _damaged(path, "its footer cannot be parsed", e)
    if metadata.num_rows != found.count:
        _damaged(path, f"its footer says {found.count} records, and it holds {metadata.num_rows}")
    return found


def _hex(crc: int) -> bytes:
    return b"%08x" % crc


def _damaged(path: str, why: str, cause: BaseException | None = None) -> NoReturn:
    raise DamagedBlockError(
        f"block is damaged: {why}",
        operation="read block",
        path=path,
        hint="restore the file from a copy; `penstock journal verify` finds all that is damaged",
    ) from cause


def _newer(path: str, version: int) -> NoReturn:
    raise NewerBlockError(
        f"block has format version {version}, newer than {FORMAT_VERSION}",
        operation="read block",
        path=path,
        hint="upgrade penstock here to the version that wrote it",
    )
