"""What the runs of a Structured Streaming query say of themselves, in a file of its checkpoint.

Spark's logs do not tell the trigger, nor which batch failed or ran again: the driver replaces this
file when a run begins or fails. Informative only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.checkpoint.batch_records import cut_text, decode_driver, driver_conf
from penstock.errors import NotFoundError
from penstock.storage import Storage

__all__ = ["RUNS_FILE", "QueryRuns", "read_query_runs", "write_query_runs"]

RUNS_FILE = "penstock/runs.json"
_MOST = 100
_MOST_MS = 10**15


@dataclass(frozen=True, slots=True)
class QueryRuns:
    """The runs of a query: the newest, and what became of batches."""

    trigger_ms: int = 0
    """The newest run's trigger interval, 0 for none."""
    began_ms: int = 0
    """When it began, since the epoch."""
    driver: Mapping[str, str] = field(default_factory=dict)
    """Its process, see ``decode_driver``."""
    reruns: tuple[int, ...] = ()
    """Batches that ran more than once."""
    failed: tuple[int, str] | None = None
    """The batch in which it failed, and the error; None if it did not."""

    def begun(self, trigger_ms: int, spark_ui: str | None, again: int | None) -> QueryRuns:
        """Return them with a run of this process that begins.

        Args:
            trigger_ms: its trigger interval, 0 for none.
            spark_ui: the URL of its Spark UI.
            again: the batch that was planned and not committed, which it runs first.
        """
        reruns = self.reruns
        if again is not None:
            reruns = (*(each for each in reruns if each != again), again)
        now_ms = time.time_ns() // 1_000_000
        driver = driver_conf(spark_ui)
        return QueryRuns(trigger_ms, now_ms, driver, reruns[-_MOST:])

    def ended_in(self, batch_id: int, error: str) -> QueryRuns:
        """Return them with the newest run failed in a batch."""
        return replace(self, failed=(batch_id, cut_text(error)))


def read_query_runs(storage: Storage) -> QueryRuns:
    """Return what a query's checkpoint has; nothing where it tells nothing that can be read.

    Raises:
        StorageError: the storage does not answer.
    """
    try:
        found = json.loads(storage.read(RUNS_FILE))
        runs = QueryRuns(
            _time_ms(found["triggerMs"]),
            _time_ms(found["beganMs"]),
            {str(key): str(value) for key, value in found["driver"].items()},
            tuple(int(each) for each in found["reruns"]),
            None if found["failed"] is None else _failed(*found["failed"]),
        )
    except NotFoundError:
        return QueryRuns()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return QueryRuns()  # informative only: what a damaged file tells is left out
    return runs if decode_driver(runs.driver) else replace(runs, driver={})


def _time_ms(value: Any) -> int:
    return min(max(0, int(value)), _MOST_MS)


def _failed(batch_id: Any, error: Any) -> tuple[int, str]:
    return int(batch_id), cut_text(str(error))


def write_query_runs(storage: Storage, runs: QueryRuns) -> None:
    """Replace the file; raises StorageError."""
    values = {
        "triggerMs": runs.trigger_ms,
        "beganMs": runs.began_ms,
        "driver": dict(runs.driver),
        "reruns": runs.reruns,
        "failed": runs.failed,
    }
    storage.create(RUNS_FILE, json.dumps(values).encode(), overwrite=True)
