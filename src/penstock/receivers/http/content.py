"""Decodes a body as it was sent: gzip, which may expand a thousandfold.

Invariant: no more than the cap is ever held, however small the compressed body was.
"""

from __future__ import annotations

import zlib

from penstock.receivers.http.answers import RefusedError

_GZIP = 16 + zlib.MAX_WBITS
_PIECE_BYTES = 1 << 20
_FED_BYTES = 64 << 10
"""A member hands back a copy of what it did not use: short, however many members there are."""


def expand_gzip(body: bytes | bytearray, max_bytes: int) -> bytes:
    """Return the content of a gzip body of one or more members.

    Raises:
        RefusedError: 413 when it is larger than ``max_bytes``, 400 when it is not whole gzip data.
    """
    expanded = bytearray()
    member = zlib.decompressobj(_GZIP)
    with memoryview(body) as view:
        for start in range(0, len(view), _FED_BYTES):
            member = _expand(member, bytes(view[start : start + _FED_BYTES]), expanded, max_bytes)
    if not member.eof:
        raise RefusedError(400, "the gzip body is cut off")
    return bytes(expanded)


def _expand(
    member: zlib._Decompress, fed: bytes, expanded: bytearray, max_bytes: int
) -> zlib._Decompress:
    """Expand the next bytes of a body that is at ``member``; return the member it is at then."""
    has_more = bool(fed)
    while has_more:
        if member.eof:
            member = zlib.decompressobj(_GZIP)
        limit = min(max_bytes + 1 - len(expanded), _PIECE_BYTES)
        try:
            piece = member.decompress(fed, limit)
        except zlib.error as e:
            raise RefusedError(400, "the body is not gzip, as its Content-Encoding says") from e
        expanded += piece
        if len(expanded) > max_bytes:
            raise RefusedError(413, f"the body expands to more than {max_bytes} bytes")
        fed = member.unused_data if member.eof else member.unconsumed_tail
        has_more = bool(fed) or (len(piece) == limit and not member.eof)
    return member
