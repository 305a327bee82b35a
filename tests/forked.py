"""Clean processes for steps that are killed, forked from one that has imported what they need.

A fresh interpreter would spend most of its time on imports. What is forked has no thread, no open
file and no state of the tests' process.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

from tests.waiting import WAIT_S, eventually

FORKS = multiprocessing.get_context("forkserver")
# One list for all modules of a run: the server starts once, with what the first of them asks for.
FORKS.set_forkserver_preload(
    [
        "httpx",
        "distributed",
        "paho.mqtt.client",
        "pandas",  # this and the next one come with the first array of Python's objects
        "pyarrow.pandas_compat",
        "pytest",
        "penstock.batched.checkpoints",
        "penstock.batched.streamz",
        "penstock.checkpoint",
        "penstock.cli.checkpoint",
        "penstock.cli.ingest",
        "penstock.cli.journal",
        "penstock.cli.main",
        "penstock.journal",
        "penstock.kafka.sink",
        "penstock.receivers.http",
        "penstock.streaming",
        "tests.driver_program",
        "penstock.structured.sinks",
        "penstock.structured.sinks.postgres",
    ]
)


class Forked:
    """A new process that takes a step, a function of a module; for several threads of this one."""

    def __init__(self, step: Callable[..., object], *args: object) -> None:
        self._process: BaseProcess = FORKS.Process(target=step, args=args)
        self._process.start()
        self._lock = threading.Lock()
        self.pid = cast("int", self._process.pid)

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        with self._lock:
            return self._process.exitcode

    def wait(self, within_s: float = WAIT_S) -> int:
        """Wait until it has ended; return its exit code."""
        ended = eventually(lambda: self.poll() is not None, within_s)
        assert ended, f"process {self.pid} does not end"
        return cast("int", self.poll())

    def kill(self) -> None:
        """SIGKILL it, if it runs."""
        with self._lock:
            self._process.kill()


def run_forked(step: Callable[..., object], *args: object) -> int:
    """Take a step, a function of a module, in a new process; return the process's exit code."""
    return run_all_forked([partial(step, *args)]).pop()


def run_all_forked(steps: Iterable[Callable[[], object]]) -> set[int]:
    """Take steps at the same time, each in a new process; return the processes' exit codes."""
    processes: list[BaseProcess] = [FORKS.Process(target=step) for step in steps]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return {cast("int", process.exitcode) for process in processes}


@contextmanager
def forked(step: Callable[..., object], *args: object, errors: Path) -> Iterator[int]:
    """Take a step in a new process, which is killed with SIGKILL at the end of the block.

    Yields its process id.
    What it writes to standard error is appended to ``errors``.
    """
    process: BaseProcess = FORKS.Process(target=_take, args=(step, args, str(errors)))
    process.start()
    try:
        yield cast("int", process.pid)
    finally:
        process.kill()
        process.join()


def _take(step: Callable[..., object], args: tuple[object, ...], errors: str) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    step(*args)
