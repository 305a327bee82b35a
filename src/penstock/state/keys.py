"""The identity of keys: the bytes under which a key's state is stored.

Python's dicts treat ``1``, ``1.0`` and ``True`` as one key, as does all grouping in PySpark. Their
pickles differ, and pickles of equal objects may differ. Python's ``hash`` differs between Python
versions and, for text, between processes. State outlives both, so a separate encoding determines a
key's identity and partition:

1. Keys that are equal have equal bytes, and keys that differ have different ones.
2. The bytes of a key never change: they are part of the format (docs/state.md).
3. The key can be decoded: ``decode_key(encode_key(key)) == key``. Decoding returns the simplest of
   equal keys: ``int`` for whole numbers, ``tuple`` for a named tuple, UTC for a time with a zone.

All other keys are refused: NaN, which equals nothing, and objects whose equality bytes cannot
express.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from numbers import Integral
from typing import Any, NoReturn
from uuid import UUID

from penstock.errors import StateKeyError

__all__ = ["decode_key", "encode_key", "partition_of"]

_LENGTH = struct.Struct(">I")
_FLOAT = struct.Struct(">d")


def partition_of(key: Any) -> int:
    """Return a number that is the same for equal keys in all processes and versions.

    Raises:
        StateKeyError: the key has no durable identity.
    """
    return zlib.crc32(encode_key(key))


def encode_key(key: Any) -> bytes:
    """Return the bytes that identify a key.

    Raises:
        StateKeyError: the key has no durable identity.
    """
    encode = _ENCODERS.get(type(key))  # the most frequent type
    if encode is not None:
        return encode(key)
    for kind, encode_as in _ENCODERS_OF_SUBCLASSES:
        if isinstance(key, kind):
            return encode_as(key)
    _refuse(key, f"{type(key).__name__} is not a supported type for keys of state")


def decode_key(data: bytes) -> Any:
    """Return the key that bytes of ``encode_key`` identify."""
    return _DECODERS[data[:1]](data[1:])


def _encode_str(key: str) -> bytes:
    return b"s" + str.encode(key, "utf-8", "surrogatepass")


def _encode_int(key: Any) -> bytes:
    return b"i%x" % int(key)  # hexadecimal: int() refuses thousands of decimal digits


def _encode_float(key: float) -> bytes:
    if key != key:
        _refuse(key, "NaN does not equal itself")
    return _encode_int(key) if key.is_integer() else b"f" + _FLOAT.pack(key)


def _encode_decimal(key: Decimal) -> bytes:
    if key.is_nan():
        _refuse(key, "NaN does not equal itself")
    if key.is_infinite() or float(key) == key:
        return _encode_float(float(key))
    if key == key.to_integral_value():
        return _encode_int(key)
    sign, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)  # it is a finite number
    kept = "".join(map(str, digits)).rstrip("0")  # 0.10 is 0.1; normalize() would round
    return b"D%s%se%d" % (b"-" * sign, kept.encode(), exponent + len(digits) - len(kept))


def _encode_datetime(key: datetime) -> bytes:
    if key.utcoffset() is None:
        return b"T" + key.replace(tzinfo=None, fold=0).isoformat().encode()
    return b"Z" + key.astimezone(timezone.utc).isoformat().encode()


def _encode_tuple(key: tuple[Any, ...]) -> bytes:
    parts = [b"t"]
    for encoded in map(encode_key, key):
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def _decode_tuple(data: bytes) -> tuple[Any, ...]:
    return tuple(map(decode_key, _split(data)))


def _split(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        yield data[at : at + length]
        at += length


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    str: _encode_str,
    int: _encode_int,
    bool: _encode_int,
    float: _encode_float,
    tuple: _encode_tuple,
    bytes: lambda key: b"b" + bytes(key),
    type(None): lambda key: b"N",
    datetime: _encode_datetime,
    date: lambda key: b"d" + key.isoformat().encode(),
    UUID: lambda key: b"u" + key.bytes,
    Decimal: _encode_decimal,
}

# Subclasses with the equality of their base class: named tuples, enums of text, NumPy's scalars.
# Not for dates: a pandas.Timestamp counts nanoseconds.
_ENCODERS_OF_SUBCLASSES: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (str, _encode_str),
    (Integral, _encode_int),
    (float, _encode_float),
    (tuple, _encode_tuple),
    (bytes, _ENCODERS[bytes]),
)

_DECODERS: dict[bytes, Callable[[bytes], Any]] = {
    b"s": lambda data: data.decode("utf-8", "surrogatepass"),
    b"i": lambda data: int(data, 16),
    b"f": lambda data: _FLOAT.unpack(data)[0],
    b"t": _decode_tuple,
    b"b": lambda data: data,
    b"N": lambda data: None,
    b"T": lambda data: datetime.fromisoformat(data.decode()),
    b"Z": lambda data: datetime.fromisoformat(data.decode()),
    b"d": lambda data: date.fromisoformat(data.decode()),
    b"u": lambda data: UUID(bytes=data),
    b"D": lambda data: Decimal(data.decode()),
}


def _refuse(key: Any, why: str) -> NoReturn:
    raise StateKeyError(
        f"key {key!r:.200} cannot have state: {why}",
        operation="identify key",
        hint="map keys to str, int, bool, float, bytes, None, date, datetime, UUID, Decimal or "
        "tuples of these first",
    )
