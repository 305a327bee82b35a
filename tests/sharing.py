"""Shares the tests among the workers of pytest-xdist, so that they end together.

Each worker has one Spark for all of its tests that use ``sc``. Those of a file stay together, as
they share what its fixtures make; any worker takes the next file, or the next test of another kind,
when it has nothing left. What takes long comes first, and the quick ones fill the end. Needs
``--dist loadgroup --no-loadscope-reorder``, as in the Makefile.
"""

from __future__ import annotations

import pytest


def share(items: list[pytest.Item]) -> None:
    """Order the items, and mark those that have to stay together."""
    for item in items:
        if _uses_spark_of_worker(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if _uses_spark_of_worker(item):
        return 1
    if item.get_closest_marker("spark"):  # programs in processes of their own
        return 0
    return 2 if any(map(item.get_closest_marker, ("slow", "soak"))) else 3


def _uses_spark_of_worker(item: pytest.Item) -> bool:
    return "sc" in getattr(item, "fixturenames", ())
