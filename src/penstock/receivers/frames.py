"""Bytes to Arrow records that have their length before them.

The records' bytes are cut and copied by Arrow; Python follows the chain of lengths, of which each
says where the next one stands, and does nothing else per record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.errors import ReceiverError
from penstock.receivers.arguments import check

DEFAULT_MAX_RECORD_BYTES = 16 * 1024 * 1024

RECORDS_SCHEMA = pa.schema([pa.field("value", pa.binary(), nullable=False)])

# Arrow's offsets are 32 bits wide: one read and one record of this length still fit.
_LARGEST_MAX_RECORD_BYTES = 256 * 1024 * 1024

_FORMATS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class FrameSplitter:
    """Splits a stream of chunks, cut anywhere, into records; carries the unfinished one over.

    Args:
        length_bytes: how many bytes a length takes: 1, 2, 4 or 8; unsigned, of the record alone.
        byteorder: ``"big"`` or ``"little"``.
        max_record_bytes: the longest record; a hostile or mistaken length cannot take more memory.

    Raises:
        ConfigError: an argument cannot work.
    """

    def __init__(
        self,
        length_bytes: int = 4,
        byteorder: Literal["big", "little"] = "big",
        max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    ) -> None:
        check(length_bytes in _FORMATS, f"length_bytes is {length_bytes!r}", "pass 1, 2, 4 or 8")
        check(byteorder in ("big", "little"), f"byteorder is {byteorder!r}", "pass big or little")
        check(
            0 < max_record_bytes <= _LARGEST_MAX_RECORD_BYTES,
            f"max_record_bytes is {max_record_bytes}, not within 1 and {_LARGEST_MAX_RECORD_BYTES}",
            f"leave it out for {DEFAULT_MAX_RECORD_BYTES} (16 MiB)",
        )
        order = ">" if byteorder == "big" else "<"
        self._length = struct.Struct(order + _FORMATS[length_bytes])
        self._max_record_bytes = max_record_bytes
        self._unfinished = bytearray()
        self._needed = 0  # so many bytes make the unfinished record whole, as far as is known

    def feed(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        """Take the next chunk; yield the records that it completes, at most one batch.

        A generator, so that the records before one that is too long are out before the error is.

        Raises:
            ReceiverError: a record is longer than the limit; the splitter is of no further use.
        """
        if self._unfinished:
            self._unfinished += chunk
            if len(self._unfinished) < self._needed:
                return  # a long record is put together once, not for each of its chunks
            chunk = bytes(self._unfinished)
        starts, end = self._find(chunk)
        self._unfinished = bytearray(memoryview(chunk)[end:])
        if starts:
            yield self._cut(chunk, starts, end)
        if self._needed - self._length.size > self._max_record_bytes:
            raise self._too_long()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield nothing: the end of the stream completes no record.

        Raises:
            ReceiverError: it came within a record.
        """
        if self._unfinished:
            raise ReceiverError(
                f"the connection ended within a record, after {len(self._unfinished)} of "
                f"{max(self._needed, self._length.size)} bytes",
                operation="split records",
                hint="the sender ended early; what it sent before this record is stored",
            )
        yield from ()

    def _find(self, data: bytes) -> tuple[list[int], int]:
        """Return where each whole record's length stands, and where the last record ends."""
        unpack, prefix = self._length.unpack_from, self._length.size
        last, most = len(data) - prefix, self._max_record_bytes
        starts: list[int] = []
        at = self._needed = 0
        while at <= last:
            size = unpack(data, at)[0]
            end = at + prefix + size
            if size > most or end > len(data):
                self._needed = end - at
                break
            starts.append(at)
            at = end
        return starts, at

    def _cut(self, data: bytes, starts: list[int], end: int) -> pa.RecordBatch:
        """Return the records: every second piece, when lengths and records are cut alike."""
        offsets = np.empty(2 * len(starts) + 1, np.int32)
        offsets[:-1:2] = starts
        offsets[1::2] = offsets[:-1:2] + self._length.size
        offsets[-1] = end
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
        records = pieces.take(pa.array(np.arange(1, 2 * len(starts), 2)))
        return pa.record_batch([records], schema=RECORDS_SCHEMA)

    def _too_long(self) -> ReceiverError:
        size = self._needed - self._length.size
        return ReceiverError(
            f"a record of {size} bytes is longer than {self._max_record_bytes}",
            operation="split records",
            hint="raise max_record_bytes, or check that the sender's lengths have "
            f"{self._length.size} bytes in this order and count the record alone",
        )
