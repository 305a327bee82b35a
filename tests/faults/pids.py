"""Finds the processes of a Spark program, from a receiver's up."""

from __future__ import annotations

from pathlib import Path


def parent(pid: int) -> int:
    return int(_stat(pid)[1])


def is_alive(pid: int) -> bool:
    try:
        return _stat(pid)[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_stopped(pid: int) -> bool:
    return _stat(pid)[0] == "T"


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether a process was started by another, or by one that it started; not when orphaned."""
    try:
        while pid not in (0, ancestor):
            pid = parent(pid)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return pid == ancestor


def executor_of(receiver: int) -> int:
    """Return the executor's JVM: the parent of the daemon that forked the receiver's worker.

    Raises:
        LookupError: it is gone, and so the receiver is an orphan.
    """
    executor = parent(parent(receiver))
    command = Path(f"/proc/{executor}/cmdline").read_bytes()
    if b"CoarseGrainedExecutorBackend" not in command:
        raise LookupError(f"{receiver} has no executor")
    return executor


def _stat(pid: int) -> list[str]:
    """Return what /proc says after "pid (command)": state, parent's pid ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
