"""The clients of librdkafka that this process has: each has threads, pipes and sockets."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["living_clients"]


def living_clients() -> set[int]:
    """Return the id of each one's main thread.

    A test says which clients are its own by those: idle ones of other tests may end meanwhile.
    """
    clients = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text() == "rdk:main\n":
                clients.add(int(task.name))
    return clients
