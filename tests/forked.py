"""Clean processes for steps that are killed, forked from one that has imported what they need.

A fresh interpreter would spend most of its time on imports. What is forked has no thread, no open
file and no state of the tests' process.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess

FORKS = multiprocessing.get_context("forkserver")
# One list for all modules of a run: the server starts once, with what the first of them asks for.
FORKS.set_forkserver_preload(
    [
        "httpx",
        "pytest",
        "penstock.checkpoint",
        "penstock.cli.ingest",
        "penstock.journal",
        "penstock.receivers.http",
        "penstock.state",
        "penstock.streaming",
    ]
)


def run_forked(step: Callable[..., object], *args: object) -> int:
    """Take a step, a function of a module, in a new process; return the process's exit code."""
    process: BaseProcess = FORKS.Process(target=step, args=args)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode
