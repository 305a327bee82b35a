"""The batches that a window holds, gains and loses. Pure; all spans are ``(after, until]`` in ms.

|<------- previous window ------->|
.          |<--------- current window -------->|
|<- old -->|                      |<-- new --->|        --> time
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import ConfigError


class Span(NamedTuple):
    """The times after ``after_ms`` up to ``until_ms``, inclusive."""

    after_ms: int
    until_ms: int


class WindowStep(NamedTuple):
    """How a window moves."""

    left: Span
    entered: Span


def step_window(previous_ms: int, time_ms: int, window_ms: int) -> WindowStep:
    """Return the spans that the window at ``time_ms`` lost and gained since ``previous_ms``.

    No windows ended while no program ran, so the previous one may be any number of slides away.
    """
    begin_ms = time_ms - window_ms
    return WindowStep(
        left=Span(previous_ms - window_ms, min(begin_ms, previous_ms)),
        entered=Span(max(begin_ms, previous_ms), time_ms),
    )


def window_ends(
    times_ms: Iterable[int], *, window_ms: int, slide_ms: int, zero_ms: int, until_ms: int
) -> list[int]:
    """Return the ends of windows that hold any of these times, ascending, up to ``until_ms``.

    Windows end at multiples of their slide after ``zero_ms``; ``times_ms`` must be ascending.
    """
    ends: list[int] = []
    for time_ms in times_ms:
        from_ms = max(time_ms, ends[-1] + 1) if ends else time_ms
        first_ms = from_ms + (zero_ms - from_ms) % slide_ms
        ends.extend(range(first_ms, min(time_ms + window_ms, until_ms + 1), slide_ms))
    return ends


def is_worth_inverting(window_ms: int, slide_ms: int) -> bool:
    """Whether to derive a window from the previous one; small ones are recomputed, as in Spark.

    Source: ``org.apache.spark.streaming.api.python.PythonReducedWindowedDStream``.
    """
    return window_ms >= 5 * slide_ms


def check_duration(
    name: str, seconds: float, slide_ms: int, owner: str = "parent dstream's"
) -> int:
    """Return the duration of a window, slide or checkpoint interval in milliseconds.

    Raises:
        ConfigError: it is not a positive multiple of the slide of ``owner``.
    """
    is_time = isinstance(seconds, int | float) and math.isfinite(seconds)
    duration_ms = round(seconds * 1000) if is_time else 0
    if duration_ms <= 0 or duration_ms % slide_ms:
        raise ConfigError(
            f"{name} must be multiple of the {owner} slide (batch) duration "
            f"({slide_ms} ms), and is {seconds!r} s",
            operation=f"set {name}",
            hint=f"give seconds that are a multiple of {slide_ms / 1000:g}",
        )
    return duration_ms
