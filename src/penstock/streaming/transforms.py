"""What DStream operations do to each batch's RDDs, as module-level functions.

They are bound to a user's functions with ``functools.partial``, so a graph pickles them by name and
the user's functions can be found in it by keyword.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import datetime
from operator import add
from typing import Any

from pyspark import RDD

__all__ = [
    "batch_time",
    "count",
    "filter_records",
    "flat_map",
    "map_partitions",
    "map_records",
    "map_values",
    "reduce_by_key",
    "takes_time",
    "transform",
    "transform_at",
    "union",
]


def batch_time(time_ms: int) -> datetime:
    """Return a batch's time as PySpark hands it to users: local, without a zone."""
    return datetime.fromtimestamp(time_ms / 1000)  # noqa: DTZ006 (drop-in for pyspark.streaming)


def takes_time(func: Callable[..., Any], rdds: int = 1) -> bool:
    """Whether a user's function of ``rdds`` RDDs takes the batch time before them."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(func).parameters.values()
    except ValueError:
        return False  # a built-in that does not tell
    needed = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    return len(needed) > rdds


def map_records(
    time_ms: int, rdd: RDD[Any], *, func: Callable[[Any], Any], keeps: bool
) -> RDD[Any]:
    """Apply a function to each record."""
    return rdd.map(func, preservesPartitioning=keeps)


def flat_map(
    time_ms: int, rdd: RDD[Any], *, func: Callable[[Any], Iterable[Any]], keeps: bool
) -> RDD[Any]:
    """Apply a function that gives several records to each record."""
    return rdd.flatMap(func, preservesPartitioning=keeps)


def filter_records(time_ms: int, rdd: RDD[Any], *, func: Callable[[Any], bool]) -> RDD[Any]:
    """Keep the records that the function is true of."""
    return rdd.filter(func)


def map_partitions(
    time_ms: int, rdd: RDD[Any], *, func: Callable[[Iterable[Any]], Iterable[Any]], keeps: bool
) -> RDD[Any]:
    """Apply a function to each partition's iterator."""
    return rdd.mapPartitions(func, preservesPartitioning=keeps)


def map_values(time_ms: int, rdd: RDD[Any], *, func: Callable[[Any], Any]) -> RDD[Any]:
    """Apply a function to the value of each pair."""
    return rdd.mapValues(func)


def reduce_by_key(
    time_ms: int, rdd: RDD[Any], *, func: Callable[[Any, Any], Any], partitions: int | None
) -> RDD[Any]:
    """Merge the values of each key."""
    return rdd.reduceByKey(func, partitions or rdd.context.defaultParallelism)


def count(time_ms: int, rdd: RDD[Any]) -> RDD[int]:
    """Return an RDD of one number, or of none when the batch has no partitions."""
    # Lambdas, because executors get them by value: they never import penstock.streaming.
    counted = rdd.mapPartitions(lambda records: [(None, sum(1 for _ in records))])
    return counted.reduceByKey(add, 1).values()


def union(time_ms: int, *rdds: RDD[Any]) -> RDD[Any]:
    """Put the batches of several streams together."""
    return rdds[0].context.union(list(rdds))


def transform(time_ms: int, *rdds: RDD[Any], func: Callable[..., RDD[Any]]) -> RDD[Any]:
    """Apply a user's function to the RDDs of a batch."""
    return func(*rdds)


def transform_at(time_ms: int, *rdds: RDD[Any], func: Callable[..., RDD[Any]]) -> RDD[Any]:
    """Apply a user's function to the batch's time and RDDs."""
    return func(batch_time(time_ms), *rdds)
