"""A body as it was sent, back to the bytes that were meant: gzip, which may expand a thousandfold.

Invariant: no more than the cap is ever held, however small the compressed body was.
"""

from __future__ import annotations

import zlib

from penstock.receivers.http.answers import RefusedError

__all__ = ["expand_gzip"]

_GZIP = 16 + zlib.MAX_WBITS
_PIECE_BYTES = 1 << 20


def expand_gzip(body: bytes | bytearray, max_bytes: int) -> bytes:
    """Return the content of a gzip body of one or more members.

    Raises:
        RefusedError: 413 when it is larger than ``max_bytes``, 400 when it is no whole gzip data.
    """
    pieces: list[bytes] = []
    left = max_bytes
    rest = bytes(body)
    while rest:
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            piece = _expand(member, rest, min(left + 1, _PIECE_BYTES))
            rest = member.unconsumed_tail
            left -= len(piece)
            if left < 0:
                raise RefusedError(413, f"the body expands to more than {max_bytes} bytes")
            pieces.append(piece)
            if not piece and not member.eof:
                raise RefusedError(400, "the gzip body is cut off")
        rest = member.unused_data
    return b"".join(pieces)


def _expand(member: zlib._Decompress, data: bytes, max_bytes: int) -> bytes:
    try:
        return member.decompress(data, max_bytes)
    except zlib.error as e:
        raise RefusedError(400, "the body is not gzip, as its Content-Encoding says") from e
