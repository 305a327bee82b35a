"""Jobs of a batch, and how far they have come. Plain state; the JobScheduler guards it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from penstock.streaming.batch import Batch
from penstock.streaming.listener import BatchInfo

__all__ = ["Job", "JobSet", "jobs_after"]


@dataclass(frozen=True)
class Job:
    """One output operation of one batch."""

    batch: Batch
    output_id: int
    name: str
    run: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.name} {self.output_id} of batch {self.batch.id} ({self.batch.time_ms} ms)"


@dataclass
class JobSet:
    """All jobs of one batch. Times are milliseconds since the epoch."""

    batch: Batch
    jobs: list[Job]
    num_records: int
    submitted_ms: int
    started_ms: int | None = None
    ended_ms: int | None = None
    failed: bool = False
    unfinished: int = field(init=False)

    def __post_init__(self) -> None:
        self.unfinished = len(self.jobs)

    def start(self, now_ms: int) -> bool:
        """Note that a job starts; return whether it is the first of the batch."""
        first = self.started_ms is None
        if first:
            self.started_ms = now_ms
        return first

    def skip(self, now_ms: int) -> None:
        """Note that there was nothing to run."""
        self.started_ms = self.ended_ms = now_ms

    def finish(self, now_ms: int, *, failed: bool) -> bool:
        """Note that a job ended; return whether it was the last of the batch."""
        self.unfinished -= 1
        self.failed = self.failed or failed
        if self.unfinished == 0:
            self.ended_ms = now_ms
        return self.unfinished == 0

    def info(self) -> BatchInfo:
        """Return what listeners are told."""
        return BatchInfo(
            batchId=self.batch.id,
            batchTime=self.batch.time_ms,
            numRecords=self.num_records,
            submissionTime=self.submitted_ms,
            processingStartTime=self.started_ms,
            processingEndTime=self.ended_ms,
            failed=self.failed,
        )


def jobs_after(first: Callable[[], None], batch: Batch, jobs: list[Job]) -> list[Job]:
    """Return the jobs, each of which sees to it that ``first`` is done before it runs.

    Whichever job comes first does it; it must be one that can be called repeatedly, by several
    threads. A batch without outputs gets a job for it alone.
    """

    def run(job: Job) -> None:
        first()
        job.run()

    if not jobs:
        return [Job(batch, 0, "update state", first)]
    return [replace(job, run=partial(run, job)) for job in jobs]
