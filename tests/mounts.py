"""Small real file systems, for tests of full and read-only disks; they need to be root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of that size (``256k``) at ``place``; skip the test where that is refused."""
    place.mkdir()
    mounted = mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    if mounted:
        pytest.skip(f"cannot mount a tmpfs, so no full disk is tried: {mounted}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def mount(*arguments: str) -> str:
    """Mount; return the problem, or nothing."""
    try:
        result = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return str(error)
    return result.stderr.strip() if result.returncode else ""
