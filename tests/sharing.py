"""Shares the tests among the workers of pytest-xdist, so that they end together.

Each worker has one Spark for all of its tests that use ``sc``. Those of a file stay together, as
they share what its fixtures make. Whoever has nothing left takes the next unit: such a file, or a
test of another kind. What takes long comes first, each kind spread over the whole time: tests in
the worker's Spark, programs in processes of their own, and kills and models, which wait for disks
and clocks while the others compute. The quick ones fill the end.

Needs ``--dist loadgroup --no-loadscope-reorder``, as in scripts/gate.py.
"""

from __future__ import annotations

from collections import defaultdict

import pytest


def share(items: list[pytest.Item]) -> None:
    """Order the items, and mark those that have to stay together."""
    units: dict[str | None, dict[str, None]] = defaultdict(dict)
    for item in items:
        if _uses_sc(item):
            item.add_marker(pytest.mark.xdist_group(_unit(item)))
        units[_kind(item)][_unit(item)] = None
    quick = units.pop(None, {})
    position = {unit: i / len(of) for of in units.values() for i, unit in enumerate(of)}
    position.update(dict.fromkeys(quick, 1.0))
    items.sort(key=lambda item: position[_unit(item)])


def _kind(item: pytest.Item) -> str | None:
    """Return what a test that takes long mostly does; None of a quick one."""
    if _uses_sc(item):
        return "computes in the worker's Spark"
    if item.get_closest_marker("spark"):
        return "computes in processes of its own"
    return "waits" if any(map(item.get_closest_marker, ("slow", "soak"))) else None


def _unit(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0] if _uses_sc(item) else item.nodeid


def _uses_sc(item: pytest.Item) -> bool:
    return "sc" in getattr(item, "fixturenames", ())
