"""The clients of librdkafka that this process has: each has threads, pipes and sockets."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["count_clients"]


def count_clients() -> int:
    """Return how many there are."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text())
    return names.count("rdk:main\n")
