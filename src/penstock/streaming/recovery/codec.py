"""The bytes of a graph checkpoint file: a header with a checksum, and a compressed payload.

    penstock-graph-checkpoint v1 lz4 <bytes of the payload> <CRC-32 in hex>
    the payload, compressed

The header is one line. The CRC-32 covers the header before it and the compressed payload, so a torn
or altered file is detected before any of it is unpickled. The file names its codec, so it stays
readable under another ``spark.io.compression.codec``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

import pyarrow as pa

from penstock.errors import ConfigError

_SETTING = "spark.io.compression.codec"
_DEFAULT = "lz4"  # Spark's
_CODECS = ("lz4", "snappy", "zstd")
_CODEC_CLASS = re.compile(r"org\.apache\.spark\.io\.(\w+)CompressionCodec", re.IGNORECASE)
_HEADER = re.compile(rb"(penstock-graph-checkpoint v1 ([a-z0-9]+) ([0-9]{1,12}) )([0-9a-f]{8})\n")


class MalformedCheckpointError(ValueError):
    """Bytes are not a complete graph checkpoint; the message has the reason."""


def codec_from_conf(conf: Mapping[str, str]) -> str:
    """Return the codec of ``spark.io.compression.codec``, by short name or class name.

    Raises:
        ConfigError: it is unknown, or not available in Python (lzf exists in the JVM only).
    """
    text = conf.get(_SETTING, _DEFAULT)
    found = _CODEC_CLASS.fullmatch(text.strip())
    codec = (found[1] if found else text.strip()).lower()
    if codec not in _CODECS:
        raise ConfigError(
            f"setting {_SETTING} is {text!r}, a codec that graph checkpoints cannot use",
            operation="read settings",
            ids={"setting": _SETTING},
            hint=f"give one of {', '.join(_CODECS)}, or the name of their Spark class",
        )
    return codec


def encode(codec: str, payload: bytes) -> bytes:
    """Return the content of a file."""
    packed = pa.Codec(codec).compress(payload, asbytes=True)
    head = f"penstock-graph-checkpoint v1 {codec} {len(payload)} ".encode()
    return b"%b%08x\n%b" % (head, _checksum(head, packed), packed)


def decode(data: bytes) -> bytes:
    """Return the payload in a file's content.

    Raises:
        MalformedCheckpointError: the content is torn, altered, or of a newer version.
    """
    match = _HEADER.match(data)
    if match is None:
        raise MalformedCheckpointError("it does not begin like a graph checkpoint of this version")
    packed = data[match.end() :]
    if _checksum(match[1], packed) != int(match[4], 16):
        raise MalformedCheckpointError("it does not match its checksum: it is torn or was altered")
    unpacked: bytes = pa.Codec(match[2].decode()).decompress(packed, int(match[3]), asbytes=True)
    return unpacked


def _checksum(head: bytes, packed: bytes) -> int:
    return zlib.crc32(packed, zlib.crc32(head))
