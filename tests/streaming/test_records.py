"""What operations do to one partition's records, without Spark."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streaming.core import records

# PySpark's look at the memory in use leaves closing its file to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def stop(record: Any) -> Any:
    """A user's function with a bug: in a bare ``map`` it would end the partition early."""
    if record in (3, (0, 3)):
        raise StopIteration
    return record


def test_each_operation() -> None:
    pairs = [("a", 1), ("b", 2)]
    assert list(records.mapped([1, 2], func=str)) == ["1", "2"]
    assert list(records.filtered([1, 2, 3], func=lambda n: n % 2)) == [1, 3]
    assert list(records.flat_mapped([1, 2], func=range)) == [0, 0, 1]
    assert list(records.mapped_values(pairs, func=str)) == [("a", "1"), ("b", "2")]
    assert list(records.flat_mapped_values(pairs, func=range)) == [("a", 0), ("b", 0), ("b", 1)]
    assert list(records.reduced([1, 2, 3], func=operator.add)) == [6]
    assert list(records.reduced([], func=operator.add)) == []


STOPPED: dict[str, Callable[[], Iterator[Any]]] = {
    "mapped": lambda: records.mapped([1, 3, 4], func=stop),
    "filtered": lambda: records.filtered([1, 3, 4], func=stop),
    "flat_mapped": lambda: records.flat_mapped([1, 3, 4], func=lambda n: [stop(n)]),
    "mapped_values": lambda: records.mapped_values([(0, 3), (0, 4)], func=stop),
    "flat_mapped_values": lambda: records.flat_mapped_values(
        [(0, 3), (0, 4)], func=lambda n: [stop(n)]
    ),
    "reduced": lambda: records.reduced([1, 3, 4], func=lambda left, right: stop(right)),
    "combined": lambda: records.combined(
        [(0, 1), (0, 3), (0, 4)],
        create=records.same,
        add_value=lambda left, right: stop(right),
        limit_mb=1e9,
    ),
}


@pytest.mark.parametrize("name", STOPPED)
def test_stop_iteration_of_a_function_is_an_error_and_no_end(name: str) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(STOPPED[name]())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers()), max_size=60), st.integers(1, 7))
def test_combining_under_memory_pressure_loses_nothing(
    pairs: list[tuple[int, int]], look: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_LOOK_RECORDS", look)
        found = list(
            records.combined(pairs, create=records.same, add_value=operator.add, limit_mb=0)
        )
    sums: Counter[int] = Counter()
    for key, value in pairs:
        sums[key] += value
    merged = dict(records.merged(found, merge=operator.add, limit_mb=1e9))
    assert merged == dict(sums)
    assert len(found) >= len(merged)


def test_combining_yields_each_key_once_where_memory_is_enough() -> None:
    pairs = [(n % 3, 1) for n in range(30_000)]
    found = records.combined(pairs, create=records.same, add_value=operator.add, limit_mb=1e9)
    assert sorted(found) == [(0, 10_000), (1, 10_000), (2, 10_000)]
