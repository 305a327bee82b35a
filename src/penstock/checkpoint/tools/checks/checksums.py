"""Whether files fit the checksums beside them. Pure.

.NAME.crc   Hadoop's, on local file systems: a checksum for each chunk of the file
NAME.crc    Spark's, of state files (4.1 and later): JSON with the file's size and CRC-32C
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from penstock.checkpoint.checksum import BYTES_PER_CHUNK, sidecar_name
from penstock.checkpoint.log_format import MalformedLogError, parse_fields
from penstock.checkpoint.tools.findings import Finding

_MAGIC = b"crc\0"
_HEADER_BYTES = 8
_WITHOUT_BACKUP = (
    "; without one, go back to a batch whose state is whole, or throw the state away (rewind"
    " --drop-state)"
)
UNCHECKED = (
    "Spark 4.0 to 4.3 read logs, and state that is not in RocksDB, unchecked (by Hadoop's"
    " FileContext): the query starts with what was altered, and loses or repeats records. What"
    " reads the file by Hadoop's FileSystem fails (ChecksumException)"
)
"""What an altered file means for a query of Spark."""


def sidecar_of(path: str) -> str:
    """Return where Hadoop's checksum of a file is."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + sidecar_name(name)


def main_name(name: str) -> str:
    """Return the name of the file that Hadoop's checksum is of; that of any other file as it is."""
    return name.removeprefix(".").removesuffix(".crc") if name.endswith(".crc") else name


def spark_checksum_of(path: str) -> str:
    """Return where Spark's checksum of a state file is."""
    return f"{path}.crc"


def check_sidecar(
    path: str, data: Iterable[bytes], sidecar: bytes, *, strict: bool
) -> Iterator[Finding]:
    """Yield a finding when a file does not fit Hadoop's checksum; ``data`` are its pieces.

    A checksum that is empty or all zeros is what a power cut leaves, and is passed over. Hadoop
    also passes over one without a proper header; ``strict`` readers (penstock's) do not.
    """
    if not any(sidecar):
        return
    chunk_bytes = _chunk_bytes(sidecar)
    if chunk_bytes is None:
        yield Finding(
            "error" if strict else "warning",
            sidecar_of(path),
            "it is not a checksum file: it was altered or cut off",
            "the file beside it is refused" if strict else "the file beside it is read unchecked",
            f"compare {path} with a backup; if it is right, remove this checksum file",
        )
    elif (strict and chunk_bytes != BYTES_PER_CHUNK) or not _fits(data, sidecar, chunk_bytes):
        yield Finding(
            "error",
            path,
            f"it does not fit its checksum {sidecar_of(path)}: one of the two was altered",
            "the program does not start" if strict else UNCHECKED,
            "restore the file from a backup; if it was edited by hand and is right, remove the"
            f" checksum file{_WITHOUT_BACKUP if path.startswith('state/') else ''}",
        )


def check_size(path: str, size: int, checksum: bytes) -> Iterator[Finding]:
    """Yield a finding when a state file has another size than Spark's checksum says."""
    try:
        expected = parse_fields(checksum.decode()).get("mainFileSize")
    except (MalformedLogError, UnicodeDecodeError):
        expected = None
    if expected != size:
        yield Finding(
            "error",
            path,
            f"it has {size} bytes, and {expected if type(expected) is int else 'no size'} by its "
            f"checksum {spark_checksum_of(path)}",
            "the query fails when it loads this state"
            " (CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED)",
            f"restore both files from a backup{_WITHOUT_BACKUP}",
        )


def _chunk_bytes(sidecar: bytes) -> int | None:
    if len(sidecar) < _HEADER_BYTES or not sidecar.startswith(_MAGIC):
        return None
    (count,) = struct.unpack_from(">i", sidecar, len(_MAGIC))
    return count if count > 0 else None


def _fits(data: Iterable[bytes], sidecar: bytes, chunk_bytes: int) -> bool:
    sums = b"".join(struct.pack(">I", each) for each in _sums(data, chunk_bytes))
    return sidecar[_HEADER_BYTES:] == sums


def _sums(data: Iterable[bytes], chunk_bytes: int) -> Iterator[int]:
    """Yield the checksum of each chunk, also of those that end in another piece."""
    left, found = chunk_bytes, 0
    for piece in data:
        view, start = memoryview(piece), 0
        while start < len(view):
            part = view[start : start + left]
            start, left, found = start + len(part), left - len(part), zlib.crc32(part, found)
            if not left:
                yield found
                left, found = chunk_bytes, 0
    if left < chunk_bytes:
        yield found
