"""Output operations: they create a job for each batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from pyspark import RDD
from pyspark.sql import DataFrame

from penstock.errors import ConfigError
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.batch import Batch
from penstock.streaming.core.call_site import user_call_site
from penstock.streaming.core.transforms import batch_time, takes_time

__all__ = ["ForEachBatch", "ForEachRDD", "OutputOperation", "print_records"]


class OutputOperation(ABC):
    """An action on every batch of a stream."""

    name: str
    exactly_once = False
    """Whether its sink remembers the newest batch id, and skips batches up to it."""

    def __init__(self, parent: BaseDStream, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise ConfigError(
                f"{func!r} is not a function",
                operation=self.name,
                hint="give a function of the batch",
            )
        self.parent = parent
        self.func = func
        self.call_site = user_call_site()

    @abstractmethod
    def job(self, batch: Batch) -> Callable[[], Any] | None:
        """Return the function to run for this batch, None if the stream has no RDD at its time.

        Called when the batch is planned; builds RDDs only.
        """


class ForEachRDD(OutputOperation):
    """Calls a user's function with each batch's RDD."""

    name = "foreachRDD"

    def job(self, batch: Batch) -> Callable[[], Any] | None:
        """Return the call of the user's function, with the time first if it takes it."""
        rdd = self.parent.get_or_compute(batch.time_ms)
        if rdd is None:
            return None
        if takes_time(self.func):
            return partial(self.func, batch_time(batch.time_ms), rdd)
        return partial(self.func, rdd)


class ForEachBatch(OutputOperation):
    """Calls a user's function with each batch's DataFrame and id."""

    name = "foreachBatch"

    def __init__(self, parent: BaseDStream, func: Callable[[DataFrame, int], Any]) -> None:
        super().__init__(parent, func)
        if not parent.has_columns():
            raise ConfigError(
                f"{type(parent).__name__} has no columns",
                operation="foreachBatch",
                hint="call foreachBatch on a receiver's stream or a union of such; "
                "use foreachRDD on streams of Python objects",
            )

    def job(self, batch: Batch) -> Callable[[], Any] | None:
        """Return the call of the user's function; the DataFrame is created when it runs."""
        if not self.parent.is_time_valid(batch.time_ms):
            return None
        return partial(self._run, batch)

    def _run(self, batch: Batch) -> None:
        self.func(self.parent.compute_dataframe(batch.time_ms), batch.id)


def print_records(time: Any, rdd: RDD[Any], *, num: int) -> None:
    """Print the first records of a batch, as pyspark.streaming does."""
    taken = rdd.take(num + 1)
    print("-------------------------------------------")
    print(f"Time: {time}")
    print("-------------------------------------------")
    for record in islice(taken, num):
        print(record)
    if len(taken) > num:
        print("...")
    print("", flush=True)
