"""The format of every file of the state store: sections of bytes, then a footer with checksums.

    section ... section | footer (JSON) | footer length | CRC-32 of footer and length | magic
                                           4 bytes LE      4 bytes LE                   8 bytes

Invariants:

1. The footer holds the format's version, the file's kind, and the location and CRC-32 of each
   section; sections follow each other from byte 0 without gaps. So a checksum covers each byte.
2. No section is returned as a whole, or unpickled, before its checksum was verified.
3. The footer names the codec, so a file is read under any setting. One without a codec (format 1,
   of earlier releases) has its sections as they are.

A section is compressed in blocks, each by itself, so that a large one is never in memory. The
footer comes last because it is written before its checksum is known. docs/state.md describes the
format.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from penstock.errors import DamagedStateError, MissingStateError, NotFoundError
from penstock.storage import Storage

__all__ = [
    "BLOCK_BYTES",
    "CODECS",
    "Section",
    "StateFile",
    "encode_file",
    "encode_footer",
    "open_file",
]

CODECS = ("lz4", "snappy", "zstd")
BLOCK_BYTES = 8 << 20
_FORMAT = 2
_MAGIC = b"PSTSTATE"
_TRAILER = struct.Struct("<II8s")
_TAIL_BYTES = 64 << 10
"""The first read of a file; it covers a small file completely."""


class Section(NamedTuple):
    """How a section is stored: its blocks, each with its bytes here and when it is unpacked."""

    crc: int = 0
    blocks: tuple[tuple[int, int], ...] = ()

    def and_block(self, packed: bytes, size: int) -> Section:
        """Return the section with one more block at its end."""
        return Section(zlib.crc32(packed, self.crc), (*self.blocks, (len(packed), size)))


def encode_file(
    kind: str, facts: Mapping[str, Any], sections: Mapping[str, Any], codec: str = CODECS[0]
) -> bytes:
    """Return the bytes of a file with these facts in its footer and these sections of bytes."""
    parts: list[bytes] = []
    stored = dict.fromkeys(sections, Section())
    for name, data in sections.items():
        view = memoryview(data)
        for at in range(0, len(view), BLOCK_BYTES):
            block = view[at : at + BLOCK_BYTES]
            parts.append(pa.Codec(codec).compress(block, asbytes=True))
            stored[name] = stored[name].and_block(parts[-1], len(block))
    return b"".join([*parts, encode_footer(kind, facts, stored, codec)])


def encode_footer(
    kind: str, facts: Mapping[str, Any], sections: Mapping[str, Section], codec: str
) -> bytes:
    """Return the end of a file with these sections, in this order."""
    spans, at = {}, 0
    for name, section in sections.items():
        length = sum(packed for packed, _ in section.blocks)
        spans[name] = [at, length, section.crc]
        at += length
    blocks = {name: section.blocks for name, section in sections.items()}
    fields = {"format": _FORMAT, "kind": kind, "sections": spans, "blocks": blocks, "codec": codec}
    fields |= facts
    footer = json.dumps(fields, separators=(",", ":")).encode()
    size = struct.pack("<I", len(footer))
    return footer + _TRAILER.pack(len(footer), zlib.crc32(footer + size), _MAGIC)


def open_file(storage: Storage, path: str, kind: str) -> StateFile:
    """Read and verify a file's footer.

    Raises:
        MissingStateError: the file does not exist.
        DamagedStateError: it is not a valid file of this kind.
        StorageError: it cannot be read.
    """
    file = StateFile(storage, path)
    if file.facts.get("kind") != kind:
        file.damaged(f"it is a {file.facts.get('kind')} where a {kind} should be")
    return file


class StateFile:
    """An open file: its facts, and its sections on demand. Raises as ``open_file``."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._tail = self._read(-_TAIL_BYTES, None)
        self.facts = self._read_footer()
        """The content of the footer."""
        spans = self.facts["sections"]
        self._content_bytes: int = sum(length for _, length, _ in spans.values())

    def size(self, name: str) -> int:
        """Return the number of bytes of a section, unpacked."""
        return sum(size for _, size in self._blocks(name))

    def section(self, name: str) -> bytes:
        """Return a section's bytes, verified."""
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield a section in blocks of some MB; the last one only after all are verified."""
        at, length, wanted_crc = self.facts["sections"][name]
        end, crc = at + length, 0
        for packed_size, size in self._blocks(name):
            packed = self._slice(at, at + packed_size)
            if len(packed) != packed_size:
                self.damaged("it is shorter than its footer says")
            at, crc = at + packed_size, zlib.crc32(packed, crc)
            if at == end and crc != wanted_crc:
                self.damaged(f"the checksum of its {name} differs")
            yield self._unpacked(packed, size, name)

    def _unpacked(self, packed: bytes, size: int, name: str) -> bytes:
        if (codec := self.facts.get("codec")) is None:
            return packed
        try:
            return bytes(pa.Codec(codec).decompress(packed, size, asbytes=True))
        except (OSError, ValueError) as error:
            self.damaged(f"its {name} cannot be unpacked", error)

    def _blocks(self, name: str) -> Sequence[tuple[int, int]]:
        """Return the blocks of a section: the bytes of each, here and unpacked."""
        if "blocks" in self.facts:
            return [(packed, size) for packed, size in self.facts["blocks"][name]]
        length = self.facts["sections"][name][1]
        sizes = (min(BLOCK_BYTES, length - at) for at in range(0, length, BLOCK_BYTES))
        return [(size, size) for size in sizes]

    def damaged(self, why: str, cause: BaseException | None = None) -> NoReturn:
        """Raise DamagedStateError."""
        raise DamagedStateError(
            f"state file is damaged: {why}",
            operation="read state",
            path=self._storage.uri(self._path),
            hint="restore the file from a copy; without one, move the operator's folder away to "
            "begin with empty state",
        ) from cause

    def _slice(self, start: int, end: int) -> bytes:
        tail_start = self._content_bytes + self._footer_bytes - len(self._tail)
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        return self._read(start, end)

    def _read(self, start: int, end: int | None) -> bytes:
        try:
            return self._storage.read(self._path, start, end)
        except NotFoundError as error:
            raise MissingStateError(
                "a file of the state is missing",
                operation="read state",
                path=self._storage.uri(self._path),
                hint="restore the file from a copy; without one, move the operator's folder away "
                "to begin with empty state",
            ) from error

    def _read_footer(self) -> dict[str, Any]:
        tail = self._tail
        if len(tail) < _TRAILER.size:
            self.damaged("it is too short")
        length, crc, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
        if magic != _MAGIC:
            self.damaged("it does not end as state files do")
        self._footer_bytes: int = length + _TRAILER.size
        if self._footer_bytes > len(tail):
            tail = self._tail = self._read(-self._footer_bytes, None)
        footer = tail[-self._footer_bytes : -_TRAILER.size]
        if len(footer) != length or zlib.crc32(footer + struct.pack("<I", length)) != crc:
            self.damaged("the checksum of its footer differs")
        facts: dict[str, Any] = json.loads(footer)
        if facts["format"] > _FORMAT:
            self.damaged(f"it has format {facts['format']}, newer than {_FORMAT}: upgrade penstock")
        return facts
