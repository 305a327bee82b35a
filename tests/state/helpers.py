"""One operator's partition, updated batch by batch as Spark's tasks do it, beside a model."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.state import Partition, State, decode_key, encode_key, update_partition
from penstock.state.database import Database
from penstock.storage import Storage, open_storage

OPERATOR = "sums"


def add_up(key: Any, value: int | None, state: State[int]) -> Any:
    """Sum the values of a key; 0 removes it, negative numbers only look."""
    if value is None:
        return (key, "timed out", state.get())
    before = state.get() if state.exists() else None
    if value == 0:
        state.remove()
    elif value > 0:
        state.update((before or 0) + value)
    return (key, before)


class Model:
    """What ``add_up`` does, with a dict."""

    def __init__(self) -> None:
        self.sums: dict[Any, int] = {}
        self.touched_ms: dict[Any, int] = {}

    def update(
        self, records: Iterable[tuple[Any, int]], time_ms: int, timeout_ms: int | None
    ) -> Any:
        outputs: list[Any] = []
        for key, value in records:
            outputs.append((key, self.sums.get(key)))
            if value == 0:
                self.sums.pop(key, None)
            elif value > 0:
                self.sums[key] = self.sums.get(key, 0) + value
            if key in self.sums and (value > 0 or timeout_ms is not None):
                self.touched_ms[key] = time_ms
        if timeout_ms is not None:
            idle = [k for k in self.sums if self.touched_ms[k] < time_ms - timeout_ms]
            idle.sort(key=lambda key: (self.touched_ms[key], encode_key(key)))
            outputs += [(key, "timed out", self.sums.pop(key)) for key in idle]
        return outputs


class Runner:
    """Runs batches of one partition on a location, as one run of the driver on one executor."""

    def __init__(self, place: Path, run: str = "00000001", executor: str = "executor") -> None:
        self.place = place
        self.storage: Storage = open_storage(place / "state")
        self.partition = Partition(
            self.storage, OPERATOR, 0, run, str(place / executor / run / OPERATOR)
        )

    def batch(
        self,
        tip: str | None,
        records: Iterable[tuple[Any, int]],
        time_ms: int,
        *,
        timeout_ms: int | None = None,
        oldest_tip: str | None = None,
        function: Any = add_up,
    ) -> str | None:
        """Take the partition from a version to the next; return the new tip."""
        with self.partition.open(tip) as database:
            if timeout_ms is not None:
                database.index_times()
            update = update_partition(
                records, database, function, time_ms=time_ms, timeout_ms=timeout_ms
            )
            return self.partition.commit(database, update, time_ms, oldest_tip)

    def state(self, tip: str | None) -> dict[Any, Any]:
        with self.partition.open(tip) as database:
            found = contents(database)
            assert database.origin.keys == len(found)
            return found

    def outputs(self, tip: str | None, time_ms: int) -> list[Any]:
        return list(self.partition.outputs(tip, time_ms))

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.place / "state" / OPERATOR / "00000").iterdir())


def contents(database: Database) -> dict[Any, Any]:
    return {decode_key(key): pickle.loads(entry.value) for key, entry in database.rows()}
