"""The functions of DStream operations on each batch's RDDs, at module level.

They are bound to a user's functions with ``functools.partial``, so a graph pickles them by name and
the user's functions can be found in it by keyword.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from operator import add
from typing import Any

from pyspark import RDD

from penstock.errors import ConfigError
from penstock.streaming.core import records


def batch_time(time_ms: int) -> datetime:
    """Return a batch's time as PySpark passes it to users: local, without a zone."""
    return datetime.fromtimestamp(time_ms / 1000)  # noqa: DTZ006 (drop-in for pyspark.streaming)


def to_time_ms(time: datetime | float) -> int:
    """Return a local datetime, or seconds since the epoch, in milliseconds since the epoch."""
    seconds = time.timestamp() if isinstance(time, datetime) else time
    return round(seconds * 1000)


def takes_time(func: Callable[..., Any], rdds: int = 1) -> bool:
    """Whether a user's function of ``rdds`` RDDs takes the batch time as its first argument."""
    return needed_arguments(func) > rdds


def needed_arguments(func: Callable[..., Any]) -> int:
    """Return how many arguments a user's function must be given by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(func).parameters.values()
    except ValueError:
        return 0  # a built-in without a signature
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def check_arguments(func: Callable[..., Any], numbers: range, operation: str, forms: str) -> None:
    """Raise ConfigError unless a user's function takes one of these numbers of arguments.

    ``forms`` says for the message how it is called.
    """
    given = min(max(needed_arguments(func), numbers[0]), numbers[-1])
    try:
        inspect.signature(func).bind(*[None] * given)
    except ValueError:
        return  # a built-in without a signature
    except TypeError as error:
        name = getattr(func, "__name__", repr(func))
        raise ConfigError(
            f"{name} cannot be called as {forms}: {error}",
            operation=operation,
            hint="give a function that takes these arguments",
        ) from None


def by_record(
    time_ms: int, rdd: RDD[Any], *, way: Callable[..., Any], func: Callable[[Any], Any], keeps: bool
) -> RDD[Any]:
    """Apply a function to each record, or to its value, in a ``way`` of ``records``."""
    return rdd.mapPartitions(partial(way, func=func), preservesPartitioning=keeps)


def by_method(time_ms: int, rdd: RDD[Any], *, method: str, **arguments: Any) -> RDD[Any]:
    """Call the RDD method of that name."""
    made: RDD[Any] = getattr(rdd, method)(**arguments)
    return made


def by_key(
    time_ms: int, rdd: RDD[Any], *others: RDD[Any], method: str, partitions: int | None
) -> RDD[Any]:
    """Combine pairs with the RDD method of that name: groupByKey, a join or cogroup."""
    combined: RDD[Any] = getattr(rdd, method)(*others, _parallelism(rdd, partitions))
    return combined


def reduce_records(time_ms: int, rdd: RDD[Any], *, func: Callable[[Any, Any], Any]) -> RDD[Any]:
    """Merge all records into one, without a separate job; returns none without records."""
    reduced = partial(records.reduced, func=func)
    keyed = rdd.mapPartitions(lambda part: ((None, found) for found in reduced(part)))
    return reduce_by_key(time_ms, keyed, func=func, partitions=1).values()


def count_by_value(time_ms: int, rdd: RDD[Any]) -> RDD[tuple[Any, int]]:
    """Count each distinct record."""
    ones = rdd.mapPartitions(partial(records.mapped, func=lambda record: (record, 1)))
    return reduce_by_key(time_ms, ones, func=add, partitions=None)


def reduce_by_key(
    time_ms: int, rdd: RDD[Any], *, func: Callable[[Any, Any], Any], partitions: int | None
) -> RDD[Any]:
    """Merge the values of each key."""
    return combine_by_key(
        time_ms, rdd, create=records.same, add_value=func, merge=func, partitions=partitions
    )


def combine_by_key(
    time_ms: int,
    rdd: RDD[Any],
    *,
    create: Callable[[Any], Any],
    add_value: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any],
    partitions: int | None,
) -> RDD[Any]:
    """Combine the values of each key into a value of another type.

    Like ``RDD.combineByKey``, with a faster first half.
    """
    limit_mb = 0.9 * _worker_memory_mb(rdd)
    locally = partial(records.combined, create=create, add_value=add_value, limit_mb=limit_mb)
    combiners = rdd.mapPartitions(locally, preservesPartitioning=True)
    shuffled = combiners.partitionBy(_parallelism(rdd, partitions))
    merged = partial(records.merged, merge=merge, limit_mb=limit_mb)
    return shuffled.mapPartitions(merged, preservesPartitioning=True)


def reduce_rdds(
    rdds: Sequence[RDD[Any]], *, func: Callable[[Any, Any], Any], partitions: int | None
) -> RDD[Any]:
    """Merge the values of each key over several RDDs of pairs."""
    return reduce_by_key(0, unite(rdds), func=func, partitions=partitions)


def subtract_by_key(
    left: RDD[Any],
    right: RDD[Any],
    *,
    inverse: Callable[[Any, Any], Any],
    partitions: int | None,
) -> RDD[Any]:
    """Remove the values of ``right`` from those of ``left``."""
    joined = left.leftOuterJoin(right, _parallelism(left, partitions))
    return joined.mapValues(lambda both: both[0] if both[1] is None else inverse(*both))


def count(time_ms: int, rdd: RDD[Any]) -> RDD[int]:
    """Return an RDD of one number, or an empty one if the batch has no partitions."""
    # Lambdas, because they are sent to executors by value: these never import penstock.streaming.
    counted = rdd.mapPartitions(lambda records: [(None, sum(1 for _ in records))])
    return counted.reduceByKey(add, 1).values()


def union(time_ms: int, *rdds: RDD[Any]) -> RDD[Any]:
    """Unite the batches of several streams."""
    return unite(rdds)


def unite(rdds: Sequence[RDD[Any]]) -> RDD[Any]:
    """Return one RDD with the records of all; at least one is required."""
    return rdds[0] if len(rdds) == 1 else rdds[0].context.union(list(rdds))


def transform(time_ms: int, *rdds: RDD[Any], func: Callable[..., RDD[Any]]) -> RDD[Any]:
    """Apply a user's function to the RDDs of a batch."""
    return func(*rdds)


def transform_at(time_ms: int, *rdds: RDD[Any], func: Callable[..., RDD[Any]]) -> RDD[Any]:
    """Apply a user's function to the batch's time and RDDs."""
    return func(batch_time(time_ms), *rdds)


def _worker_memory_mb(rdd: RDD[Any]) -> float:
    """Return how much a Python worker may hold before it spills, as Spark is set."""
    conf = rdd.ctx._jsc.sc().conf()
    return float(conf.getSizeAsMb("spark.python.worker.memory", "512m"))


def _parallelism(rdd: RDD[Any], partitions: int | None) -> int:
    return rdd.context.defaultParallelism if partitions is None else partitions
