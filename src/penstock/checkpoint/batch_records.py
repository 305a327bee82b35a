r"""What a driver records of each batch that ended: its delays, its jobs, and whether it failed.

The conf of the next entry of the offset log has it, under ``spark.penstock.batches``:

    [{"batch": 7, "due": 1795229815446, "start": 12, "end": 862, "plan": 3, "commit": 2,
      "records": {"clicks": 850}, "jobs": [["pprint at job.py:12", 850, null]]}]

``start`` and ``end`` are milliseconds after ``due``. So the history needs no file and no request of
its own, and is retired with the batches. Like the history of rates (penstock.rate.history) it does
not include what ended after the newest entry was written. It is for people to read: no batch
depends on it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BATCHES_KEY = "spark.penstock.batches"
_DRIVER_KEY = "spark.penstock.driver"

_MOST_JOBS = 20
_MOST_TEXT = 300


@dataclass(frozen=True, slots=True)
class Driver:
    """The process that planned an entry."""

    host: str
    pid: int
    spark_ui: str | None
    """The URL of its Spark UI."""
    name: str | None = None
    """The name of its program or query (queryName), None without one."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One output operation."""

    name: str
    took_ms: int | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch that ended. Durations are milliseconds."""

    batch_id: int
    due_ms: int
    """When it should have started, since the epoch."""
    scheduling_delay_ms: int | None
    """From then to the start of its first job; None if none started."""
    total_delay_ms: int | None
    plan_ms: int | None = None
    commit_ms: int | None = None
    is_failed: bool = False
    is_rerun: bool = False
    records: Mapping[str, int] | None = None
    """By input; an input that does not know before it reads reports 0."""
    jobs: tuple[JobRecord, ...] = ()

    @property
    def processing_ms(self) -> int | None:
        """The time that its jobs took."""
        if self.scheduling_delay_ms is None or self.total_delay_ms is None:
            return None
        return self.total_delay_ms - self.scheduling_delay_ms


def encode_records(records: Iterable[BatchRecord]) -> str:
    """Return the text of an entry; jobs and errors are cut to what fits on a page."""
    return json.dumps([_values(each) for each in records], separators=(",", ":"))


def decode_records(text: str) -> list[BatchRecord]:
    """Return the batches in a text, without what cannot be read: it is for people only."""
    try:
        return [_record(each) for each in json.loads(text)]
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return []


def driver_conf(spark_ui: str | None, name: str | None = None) -> dict[str, str]:
    """Return what the conf of an entry says of this process, and of the program's name."""
    values = {"host": socket.gethostname(), "pid": os.getpid(), "ui": spark_ui}
    values |= {} if name is None else {"name": cut_text(name)}
    return {_DRIVER_KEY: json.dumps(values)}


def decode_driver(conf: Mapping[str, Any]) -> Driver | None:
    """Return the process that planned an entry, None where its conf does not tell."""
    try:
        values = json.loads(conf[_DRIVER_KEY])
        ui, name = (None if (v := values.get(key)) is None else str(v) for key in ("ui", "name"))
        return Driver(str(values["host"]), int(values["pid"]), ui, name)
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None


def _values(record: BatchRecord) -> dict[str, Any]:
    jobs = [
        [cut_text(j.name), j.took_ms, j.error and cut_text(j.error)]
        for j in record.jobs[:_MOST_JOBS]
    ]
    values = {
        "batch": record.batch_id,
        "due": record.due_ms,
        "start": record.scheduling_delay_ms,
        "end": record.total_delay_ms,
        "plan": record.plan_ms,
        "commit": record.commit_ms,
        "failed": record.is_failed or None,
        "rerun": record.is_rerun or None,
        "records": dict(record.records or {}),
        "jobs": jobs,
    }
    return {name: value for name, value in values.items() if value is not None}


def _record(values: Mapping[str, Any]) -> BatchRecord:
    return BatchRecord(
        batch_id=int(values["batch"]),
        due_ms=int(values["due"]),
        scheduling_delay_ms=_number(values.get("start")),
        total_delay_ms=_number(values.get("end")),
        plan_ms=_number(values.get("plan")),
        commit_ms=_number(values.get("commit")),
        is_failed=bool(values.get("failed")),
        is_rerun=bool(values.get("rerun")),
        records={str(name): int(count) for name, count in values["records"].items()},
        jobs=tuple(JobRecord(str(n), _number(ms), e and str(e)) for n, ms, e in values["jobs"]),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def cut_text(text: str) -> str:
    """Return a text of a job or an error, not longer than an entry should have."""
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
