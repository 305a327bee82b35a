"""The format of every file of the state store: sections of bytes, then a footer with checksums.

    section ... section | footer (JSON) | footer length | CRC-32 of footer and length | magic
                                           4 bytes LE      4 bytes LE                   8 bytes

Invariants:

1. The footer holds the format's version, the file's kind, and the location and CRC-32 of each
   section; sections follow each other from byte 0 without gaps. So a checksum covers each byte.
2. No byte of a section is returned, or unpickled, before its checksum was verified.
3. A file begins with its content, so a snapshot begins as the SQLite database that it is.

The footer comes last because a section may be large and is written before its checksum is known.
docs/state.md describes the format.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from penstock.errors import DamagedStateError, MissingStateError, NotFoundError
from penstock.storage import Storage

__all__ = ["StateFile", "encode_file", "encode_footer", "open_file"]

_FORMAT = 1
_MAGIC = b"PSTSTATE"
_TRAILER = struct.Struct("<II8s")
_TAIL_BYTES = 64 << 10
"""The first read of a file; it covers a small file completely."""


def encode_file(kind: str, facts: Mapping[str, Any], sections: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file with these facts in its footer and these sections of bytes."""
    crcs = {name: (len(data), zlib.crc32(data)) for name, data in sections.items()}
    return b"".join([*sections.values(), encode_footer(kind, facts, crcs)])


def encode_footer(
    kind: str, facts: Mapping[str, Any], sections: Mapping[str, tuple[int, int]]
) -> bytes:
    """Return the end of a file with sections of these lengths and CRC-32s, in this order."""
    spans, at = {}, 0
    for name, (length, crc) in sections.items():
        spans[name] = [at, length, crc]
        at += length
    fields = {"format": _FORMAT, "kind": kind, "sections": spans, **facts}
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
        """Return the number of bytes of a section."""
        length: int = self.facts["sections"][name][1]
        return length

    def section(self, name: str) -> bytes:
        """Return a section's bytes, verified."""
        return b"".join(self.pieces(name, None))

    def pieces(self, name: str, piece_bytes: int | None) -> Iterator[bytes]:
        """Yield a section in pieces of that size; the last piece only after all are verified."""
        start, length, wanted_crc = self.facts["sections"][name]
        step = piece_bytes or max(length, 1)
        crc = 0
        for at in range(start, start + length, step):
            end = min(at + step, start + length)
            piece = self._slice(at, end)
            if len(piece) != end - at:
                self.damaged("it is shorter than its footer says")
            crc = zlib.crc32(piece, crc)
            if end == start + length and crc != wanted_crc:
                self.damaged(f"the checksum of its {name} differs")
            yield piece

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
