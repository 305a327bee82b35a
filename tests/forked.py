"""Clean processes for steps that are killed, forked from one that has imported what they need.

A fresh interpreter would spend most of its time on imports. What is forked has no thread, no open
file and no state of the tests' process.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import cast

FORKS = multiprocessing.get_context("forkserver")
# One list for all modules of a run: the server starts once, with what the first of them asks for.
FORKS.set_forkserver_preload(
    [
        "httpx",
        "paho.mqtt.client",
        "pytest",
        "penstock.batched.checkpoints",
        "penstock.batched.streamz",
        "penstock.checkpoint",
        "penstock.cli.ingest",
        "penstock.journal",
        "penstock.kafka.sink",
        "penstock.receivers.http",
        "penstock.receivers.kafka.consumption",
        "penstock.state",
        "penstock.streaming",
    ]
)


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
def forked(step: Callable[..., object], *args: object, errors: Path) -> Iterator[None]:
    """Take a step in a new process, which is killed with SIGKILL at the end of the block.

    What it writes to standard error is appended to ``errors``.
    """
    process: BaseProcess = FORKS.Process(target=_take, args=(step, args, str(errors)))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _take(step: Callable[..., object], args: tuple[object, ...], errors: str) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    step(*args)
