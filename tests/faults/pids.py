"""Finds the processes of a Spark program, from a receiver's up, and stops one of these."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.waiting import eventually


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
    return _daemon_and_executor(receiver)[1]


def orphan_and_stop(receiver: int) -> None:
    """Stop a receiver's process, which outlives its executor.

    Raises:
        LookupError: it is an orphan already.
        ProcessLookupError: it noticed that, and ended.
    """
    daemon, executor = _daemon_and_executor(receiver)
    # The daemon would end the receiver, and the kernel hangs up on a process group that has a
    # stopped member when it is orphaned: so orphan it first, stop it before it notices. The kernel
    # looks again when the executor ends with a dead daemon that it has not waited for.
    os.kill(daemon, signal.SIGKILL)
    assert eventually(lambda: not is_alive(daemon))
    os.kill(receiver, signal.SIGSTOP)
    assert eventually(lambda: not descends_from(daemon, executor))
    with suppress(ProcessLookupError):
        os.kill(executor, signal.SIGKILL)


def sleeps(pid: int) -> bool:
    """Whether the process's main thread is blocked in a call."""
    return _stat(pid)[0] == "S"


def _daemon_and_executor(receiver: int) -> tuple[int, int]:
    daemon = parent(receiver)
    executor = parent(daemon)
    command = Path(f"/proc/{executor}/cmdline").read_bytes()
    if b"CoarseGrainedExecutorBackend" not in command:
        raise LookupError(f"{receiver} has no executor")
    return daemon, executor


def _stat(pid: int) -> list[str]:
    """Return what /proc says after "pid (command)": state, parent's pid ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
