"""The record-level functions of DStream operations, for one partition. Runs on executors.

These are generators, because a ``StopIteration`` from a user's function must not end a partition
early: in a generator Python turns it into an error. PySpark's own ``RDD.map`` and similar methods
wrap the function in another one for that, which costs more than most functions: a word count is
twice as fast with generators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain, islice
from typing import Any

from pyspark.shuffle import Aggregator, ExternalMerger, get_used_memory

_LOOK_RECORDS = 10_000
"""The number of records that are combined between two checks of the memory use."""


def mapped(records: Iterable[Any], *, func: Callable[[Any], Any]) -> Iterator[Any]:
    """Apply a function to each record."""
    return (func(record) for record in records)


def filtered(records: Iterable[Any], *, func: Callable[[Any], bool]) -> Iterator[Any]:
    """Keep the records for which a function is true."""
    return (record for record in records if func(record))


def flat_mapped(records: Iterable[Any], *, func: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield all results of a function for each record."""
    return chain.from_iterable(func(record) for record in records)


def mapped_values(pairs: Iterable[Any], *, func: Callable[[Any], Any]) -> Iterator[Any]:
    """Apply a function to the value of each pair."""
    return ((pair[0], func(pair[1])) for pair in pairs)


def flat_mapped_values(
    pairs: Iterable[Any], *, func: Callable[[Any], Iterable[Any]]
) -> Iterator[Any]:
    """Yield a pair of the key and each result of a function for a pair's value."""
    return ((pair[0], value) for pair in pairs for value in func(pair[1]))


def combined(
    pairs: Iterable[Any],
    *,
    create: Callable[[Any], Any],
    add_value: Callable[[Any, Any], Any],
    limit_mb: float,
) -> Iterator[tuple[Any, Any]]:
    """Combine the values of each key, before a shuffle merges the partitions' results.

    When this process uses more than ``limit_mb``, the results so far are yielded, and a key may
    occur again: the shuffle merges them.
    """
    remaining = iter(pairs)
    found: dict[Any, Any] = {}
    for first in remaining:
        for key, value in chain((first,), islice(remaining, _LOOK_RECORDS)):
            found[key] = add_value(found[key], value) if key in found else create(value)
        if get_used_memory() >= limit_mb:
            yield from found.items()
            found = {}
    yield from found.items()


def merged(
    pairs: Iterable[Any], *, merge: Callable[[Any, Any], Any], limit_mb: float
) -> Iterator[tuple[Any, Any]]:
    """Merge the partitions' results for each key, on disk if ``limit_mb`` is not enough."""
    merger: ExternalMerger[Any, Any, Any] = ExternalMerger(Aggregator(same, merge, merge), limit_mb)
    merger.mergeCombiners(pairs)
    yield from merger.items()


def reduced(records: Iterable[Any], *, func: Callable[[Any, Any], Any]) -> Iterator[Any]:
    """Merge all records into one; yields none without records."""
    remaining = iter(records)
    for first in remaining:
        yield reduce(func, remaining, first)


def same(value: Any) -> Any:
    """Return the value."""
    return value
