"""Finds the processes that a test run started and left alive, and the files that it has open."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

MARKER = "PENSTOCK_TEST_RUN"
"""An environment variable that every process of this run inherits."""

# They live as long as the interpreter that uses them, and end with it.
_ENDS_WITH_INTERPRETER = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def mark_this_run() -> None:
    os.environ[MARKER] = f"{os.getpid()}.{time.time_ns()}"


def processes_left(patience_s: float) -> list[str]:
    """Return pid and command of what is alive, after waiting up to ``patience_s`` for its end."""
    deadline = time.monotonic() + patience_s
    while (left := _started_by_this_run()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _started_by_this_run() -> list[str]:
    parents = _living_processes()
    marker = f"{MARKER}={os.environ[MARKER]}".encode()
    return [
        f"{pid}: {command}"
        for pid in parents
        # A forked child has its parent's environment from before the mark; a process whose parent
        # died has no way back to us but the mark.
        if _descends_from(os.getpid(), pid, parents) or marker in _read(pid, "environ").split(b"\0")
        if not _ends_with_interpreter(command := _command(pid), _command(parents[pid]))
    ]


def _ends_with_interpreter(command: str, parent: str) -> bool:
    """Whether it is a server of the interpreter's, and not a process that such a one forked."""
    return any(name in command and name not in parent for name in _ENDS_WITH_INTERPRETER)


def _living_processes() -> dict[int, int]:
    """Return pid -> parent's pid; nothing where the platform has no /proc."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        # "pid (command) state ppid ...", where the command may hold anything.
        fields = _read(int(entry.name), "stat").rpartition(b")")[2].split()
        if fields and fields[0] not in (b"Z", b"X"):
            parents[int(entry.name)] = int(fields[1])
    return parents


def _descends_from(ancestor: int, pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:  # it ended meanwhile, or is another user's
        return b""


def open_files() -> Counter[str]:
    """Return how many files, sockets and pipes this process has open, by kind."""
    kinds = Counter[str]()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own
            kinds[os.readlink(each).partition(":")[0]] += 1
    return kinds
