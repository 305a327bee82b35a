"""Output operations: they create a job for each batch.

An output has a name that is unique in the program and the same in each run. A sink that writes
exactly once identifies its batches by location id, output name and batch id: an ``OutputBatch``.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from itertools import islice
from typing import Any

from pyspark import RDD

from penstock.errors import ConfigError, StreamingError
from penstock.exactly_once import Run, enter_run, leave_run
from penstock.model import OutputBatch
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.batch import Batch
from penstock.streaming.core.call_site import user_call_site
from penstock.streaming.core.operators import name_part
from penstock.streaming.core.transforms import batch_time, check_arguments, needed_arguments


class OutputOperation(ABC):
    """An action on every batch of a stream.

    Without a name it is called by its kind and its number among the program's outputs of the kind.

    Raises:
        ConfigError: what is given is not a function, or the name is not allowed.
    """

    kind: str
    name: str
    is_named: bool
    """Whether the program gave it its name."""
    exactly_once = False
    """Whether its sink remembers the newest batch id, and skips batches up to it."""

    def __init__(self, parent: BaseDStream, func: Callable[..., Any], name: str | None) -> None:
        if not callable(func):
            raise ConfigError(
                f"{func!r} is not a function",
                operation=self.kind,
                hint="give a function of the batch",
            )
        self.name = name_part("output", self.kind, name, parent.ssc.graph.outputs)
        self.is_named = name is not None
        self.parent = parent
        self.func = func
        self.call_site = user_call_site()
        self._location_id: str | None = None
        self._again: Collection[int] = ()
        self._run_id = ""

    @property
    def is_known_by_name(self) -> bool:
        """Whether it matters what it is called: a sink is told, which may remember it."""
        return self.exactly_once or needed_arguments(self.func) > 2

    def open(self, location_id: str, again: Collection[int], run: Run) -> None:
        """Learn the checkpoint location's id; called once, at the program's start.

        ``again`` are the batches that run again, of a run that had this output already.
        """
        self._location_id = location_id
        self._again = again
        self._run_id = secrets.token_hex(8)
        enter_run(location_id, self._run_id, run)

    def token(self, batch: Batch) -> OutputBatch:
        """Return what a sink knows this output's part of a batch by."""
        if self._location_id is None:
            raise StreamingError(
                "the output has no checkpoint location before the context starts",
                operation=self.kind,
                ids={"output": self.name},
                hint="call start() first",
            )
        known = (self._location_id, self.name, batch.id)
        return OutputBatch(*known, batch.id in self._again, self._run_id, batch.plan)

    def close(self) -> None:
        """End what ``open`` and the jobs began; called at the stop, after the last job."""
        leave_run(self._location_id or "", self._run_id)

    @abstractmethod
    def job(self, batch: Batch) -> Callable[[], Any] | None:
        """Return the function to run for this batch, None if the stream has no RDD at its time.

        Called when the batch is planned; builds RDDs only.
        """


class ForEachRDD(OutputOperation):
    """Calls a user's function with each batch's RDD."""

    kind = "foreachRDD"

    def __init__(self, parent: BaseDStream, func: Callable[..., Any], name: str | None) -> None:
        super().__init__(parent, func, name)
        forms = "f(rdd), f(time, rdd) or f(time, rdd, output)"
        check_arguments(func, range(1, 4), self.kind, forms)

    def job(self, batch: Batch) -> Callable[[], Any] | None:
        """Return the call of the user's function, with the time and the token if it takes them."""
        rdd = self.parent.get_or_compute(batch.time_ms)
        if rdd is None:
            return None
        needed = needed_arguments(self.func)
        if needed > 2:
            return partial(self.func, batch_time(batch.time_ms), rdd, self.token(batch))
        if needed > 1:
            return partial(self.func, batch_time(batch.time_ms), rdd)
        return partial(self.func, rdd)


class ForEachBatch(OutputOperation):
    """Calls a user's function with each batch's DataFrame and id."""

    kind = "foreachBatch"

    def __init__(self, parent: BaseDStream, func: Callable[..., Any], name: str | None) -> None:
        super().__init__(parent, func, name)
        if not parent.has_columns():
            raise parent.no_columns()
        check_arguments(func, range(2, 4), self.kind, "f(df, batch_id) or f(df, batch_id, output)")

    def job(self, batch: Batch) -> Callable[[], Any] | None:
        """Return the call of the user's function; the DataFrame is created when it runs."""
        if not self.parent.is_time_valid(batch.time_ms):
            return None
        return partial(self._run, batch)

    def _run(self, batch: Batch) -> None:
        more = [self.token(batch)] if needed_arguments(self.func) > 2 else []
        self.func(self.parent.compute_dataframe(batch.time_ms), batch.id, *more)


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
