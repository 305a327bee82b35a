"""One durable file, made as plainly as it can be: what the disk asks for any durable step."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["create_durably"]


def create_durably(folder: Path, name: str, data: bytes) -> None:
    """Write a file, fsync it, rename it, and fsync its folder."""
    temporary = folder / f".{name}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    written = 0
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])
    os.fsync(fd)
    os.close(fd)
    os.rename(temporary, folder / name)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
