"""Shares the tests among the workers of pytest-xdist, so that they end together.

Each worker has one Spark for all of its tests that use ``sc``. Those of a file stay together, as
they share what its fixtures make. Whoever has nothing left takes the next unit: such a file, or a
test of another kind. What takes long comes first, tests in the worker's Spark and programs in
processes of their own by turns, as the ones compute where the others wait; the quick ones fill the
end. Needs ``--dist loadgroup --no-loadscope-reorder``, as in the Makefile.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    for item in items:
        if _uses_sc(item):
            item.add_marker(pytest.mark.xdist_group(_unit(item)))
    long = [item for item in items if _turn(item) == 0]
    in_worker = _positions(_unit(item) for item in long if _uses_sc(item))
    of_own = _positions(_unit(item) for item in long if not _uses_sc(item))
    position = in_worker | of_own
    items.sort(key=lambda item: (_turn(item), position.get(_unit(item), 0.0)))


def _positions(units: Iterable[str]) -> dict[str, float]:
    """Return where each unit stands among those of its kind, between 0 and 1."""
    distinct = list(dict.fromkeys(units))
    return {unit: index / len(distinct) for index, unit in enumerate(distinct)}


def _turn(item: pytest.Item) -> int:
    if _uses_sc(item) or item.get_closest_marker("spark"):
        return 0
    return 1 if any(map(item.get_closest_marker, ("slow", "soak"))) else 2


def _unit(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0] if _uses_sc(item) else item.nodeid


def _uses_sc(item: pytest.Item) -> bool:
    return "sc" in getattr(item, "fixturenames", ())
