"""Shares the tests among the workers of pytest-xdist, so that they end together.

All that use the session's Spark run in one worker, which alone starts a JVM for them. They are the
longest part, so they come first; what takes seconds comes next, and the quick ones fill the end.
Needs ``--dist loadgroup --no-loadscope-reorder``, as in the Makefile.
"""

from __future__ import annotations

import pytest


def share(items: list[pytest.Item]) -> None:
    """Order the items, and mark those that have to stay together."""
    for item in items:
        if _uses_shared_spark(item):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if _uses_shared_spark(item):
        return 0
    return 1 if any(map(item.get_closest_marker, ("spark", "slow", "soak"))) else 2


def _uses_shared_spark(item: pytest.Item) -> bool:
    return "sc" in getattr(item, "fixturenames", ())
