"""Waits for a condition in real time, with a deadline instead of a hope."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 240.0
"""How long tests wait for what has to come: long for any machine, and only failures cost it."""


def eventually(condition: Callable[[], bool], within_s: float = WAIT_S) -> bool:
    """Return True as soon as the condition holds, False when it did not in time."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.01)
    return True
