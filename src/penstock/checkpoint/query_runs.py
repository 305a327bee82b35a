"""What runs of a query, or of a program, say of themselves, in a file of its checkpoint.

Spark's logs do not tell a query's trigger, nor which batch failed or ran again: the driver replaces
this file when a run begins or fails. A DStream program writes it when it fails. Informative only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.checkpoint.batch_records import cut_text, decode_driver, driver_conf
from penstock.errors import NotFoundError, StorageError
from penstock.storage import Storage

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
    failed: tuple[int | None, str] | None = None
    """The batch in which it failed, None for none of them, and the error; None if it did not."""
    has_ended: bool = False
    """Whether the newest run is known to have ended."""

    def begun(
        self, trigger_ms: int, spark_ui: str | None, again: int | None, name: str | None = None
    ) -> QueryRuns:
        """Return them with a run of this process that begins.

        Args:
            trigger_ms: its trigger interval, 0 for none.
            spark_ui: the URL of its Spark UI.
            again: the batch that was planned and not committed, which it runs first.
            name: the query's.
        """
        reruns = self.reruns
        if again is not None:
            reruns = (*(each for each in reruns if each != again), again)
        now_ms = time.time_ns() // 1_000_000
        driver = driver_conf(spark_ui, name)
        return QueryRuns(trigger_ms, now_ms, driver, reruns[-_MOST:])

    def ended_in(self, batch_id: int | None, error: str) -> QueryRuns:
        """Return them with the newest run failed in a batch, or before it planned one."""
        return replace(self, failed=(batch_id, cut_text(error)), has_ended=True)


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
            found["ended"] is True,
        )
    except NotFoundError:
        return QueryRuns()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return QueryRuns()  # informative only: what a damaged file tells is left out
    return runs if decode_driver(runs.driver) else replace(runs, driver={})


def note_failure(
    storage: Storage, driver: Mapping[str, str], batch_id: int | None, error: str
) -> None:
    """Note that a DStream program failed: the offset log tells it with the next batch only.

    It holds as long as the newest entry of the offset log is of the same driver. Not noted if the
    storage fails.
    """
    runs = QueryRuns(began_ms=time.time_ns() // 1_000_000, driver=driver)
    with suppress(StorageError):
        write_query_runs(storage, runs.ended_in(batch_id, error))


def _time_ms(value: Any) -> int:
    return min(max(0, int(value)), _MOST_MS)


def _failed(batch_id: Any, error: Any) -> tuple[int | None, str]:
    return None if batch_id is None else int(batch_id), cut_text(str(error))


def write_query_runs(storage: Storage, runs: QueryRuns) -> None:
    """Replace the file; raises StorageError."""
    values = {
        "triggerMs": runs.trigger_ms,
        "beganMs": runs.began_ms,
        "driver": dict(runs.driver),
        "reruns": runs.reruns,
        "failed": runs.failed,
        "ended": runs.has_ended,
    }
    storage.create(RUNS_FILE, json.dumps(values).encode(), overwrite=True)
