"""Shares the tests among the workers of pytest-xdist, so that they end together.

Each worker has one Spark for all of its tests that use ``sc``. Those of a file stay together, as
they share what its fixtures make. Whoever has nothing left takes the next unit: such a file, or a
test of another kind. What takes long comes first, each kind spread over the whole time: tests in
the worker's Spark, programs in processes of their own, and kills and models, which wait for disks
and clocks while the others compute. The quick ones fill the end.

Needs ``--dist loadgroup --no-loadscope-reorder``, as in the Makefile.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Scheduler(LoadGroupScheduling):
    """xdist's, for runs that go on after a worker has crashed: its own may wait for ever then."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that crashed, and leave to other workers only those it had not begun."""
        work = self.assigned_work[node]
        crashed = next((test for unit in work.values() for test in unit if not unit[test]), None)
        for name, unit in list(work.items()):
            if crashed in unit:
                unit[crashed] = True
            if all(unit.values()):
                del work[name]
        super().remove_node(node)
        return crashed

    def _assign_work_unit(self, node: WorkerController) -> None:
        # A worker that cannot be sent to has crashed; ``remove_node`` gives the unit to another.
        with suppress(OSError):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Leave out a worker that has not said yet which tests it has found."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def schedule(self) -> None:
        """Give a worker two units at least: it runs a test only when it knows the next one."""
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)


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
