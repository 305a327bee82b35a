"""Runs a step in a process of its own under strace, which kills it at a chosen system call."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.forked import FORKS

__all__ = ["kill_points", "needs_strace", "traced"]

_STRACE = shutil.which("strace")

needs_strace = pytest.mark.skipif(_STRACE is None, reason="strace is not installed: no kills tried")

Prepare = Callable[..., Callable[[], object]]
"""Gets a step ready, and returns what takes it; a function of a module."""


def traced(
    prepare: Prepare,
    args: tuple[Any, ...],
    log: str | Path,
    inject: str = "",
    *,
    threads: bool = False,
) -> int:
    """Take a step in a new process under strace; return the process's exit code.

    ``threads`` also traces the threads that the step starts, each with counts of its own.
    """
    assert _STRACE is not None
    ours, its = FORKS.Pipe()
    process = FORKS.Process(target=_take_step, args=(its, prepare, args))
    process.start()
    assert ours.recv() == "ready"
    options = ["-o", str(log), "-e", "trace=all", *(["-e", f"inject={inject}"] if inject else [])]
    options += ["-f"] if threads else []
    tracer = subprocess.Popen([_STRACE, *options, "-p", str(process.pid)], stderr=subprocess.PIPE)
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        if b"attached" not in said:
            pytest.skip(f"strace may not attach here, no kills tried: {said!r}")
        ours.send("go")
        process.join()
    finally:
        process.kill()
        tracer.communicate()
    assert process.exitcode is not None
    return process.exitcode


def kill_points(
    prepare: Prepare, args: tuple[Any, ...], log: Path, only: re.Pattern[str] | None = None
) -> list[str]:
    """Take a step, and return what makes strace kill at each of its system calls in turn.

    ``only`` matches, from their beginning, the lines of the calls that are wanted.
    """
    assert traced(prepare, args, log) == 0
    counts: Counter[str] = Counter()
    points = []
    for line in re.findall(r"^\w+\(.*", log.read_text(), re.MULTILINE):
        call = line.partition("(")[0]
        counts[call] += 1
        if only is None or only.match(line):
            points.append(f"{call}:signal=SIGKILL:when={counts[call]}")
    assert len(points) > 10
    return points


def _take_step(pipe: Connection, prepare: Prepare, args: tuple[Any, ...]) -> None:
    step = prepare(*args)
    pipe.send("ready")
    pipe.recv()
    step()
    os._exit(0)  # the system calls of the interpreter's end are not ours
