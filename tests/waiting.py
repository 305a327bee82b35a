"""Waits for a condition in real time, with a deadline instead of a hope."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 240.0
"""How long tests wait for what has to come: long for any machine, and only failures cost it."""


def eventually(condition: Callable[[], bool], within_s: float = WAIT_S) -> bool:
    """Return True as soon as the condition holds, False when it did not in time.

    Between two looks it pauses for longer than a look computes: a condition that reads many files
    leaves the processors to what it waits for. One that itself waits, for brokers, need not pause.
    """
    deadline_s = time.monotonic() + within_s
    computed_s = time.thread_time()
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(max(0.01, 3 * (time.thread_time() - computed_s)))
        computed_s = time.thread_time()
    return True
