"""The jobs of a batch and their progress. Plain state; the JobScheduler guards it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.clock import iso_time
from penstock.root_cause import root_cause
from penstock.streaming.core.batch import Batch, InputLimit
from penstock.streaming.core.call_site import CallSite
from penstock.streaming.core.events import BatchInfo, OutputOperationInfo, StreamInputInfo


@dataclass(frozen=True)
class Job:
    """One output operation of one batch."""

    batch: Batch
    output_id: int
    call_site: CallSite
    run: Callable[[], Any]

    def __str__(self) -> str:
        return (
            f"{self.call_site.operation} {self.output_id} of batch {self.batch.id} "
            f"({iso_time(self.batch.time_ms)}), {self.call_site.short}"
        )


@dataclass
class JobSet:
    """All jobs of one batch. Times are milliseconds since the epoch."""

    batch: Batch
    jobs: list[Job]
    inputs: Mapping[int, StreamInputInfo]
    due_ms: int
    """When it should have started."""
    submitted_ms: int
    limits: Mapping[str, InputLimit] = field(default_factory=dict)
    """The limits of the batch by input; unknown for a batch that runs again."""
    plan_ms: int | None = None
    """How long it took to plan; None for a batch that runs again, which an earlier run planned."""
    commit_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    failed: bool = False
    unfinished: int = field(init=False)
    outputs: dict[int, OutputOperationInfo] = field(init=False)
    causes: dict[int, str] = field(default_factory=dict)
    """The errors of jobs that failed, in one line each."""

    def __post_init__(self) -> None:
        self.unfinished = len(self.jobs)
        self.outputs = {
            job.output_id: OutputOperationInfo(
                self.batch.time_ms, job.output_id, job.call_site.short, job.call_site.long
            )
            for job in self.jobs
        }

    def begin(self, now_ms: int) -> bool:
        """Note that a job is about to start; return whether it is the first of the batch."""
        first = self.started_ms is None
        if first:
            self.started_ms = now_ms
        return first

    def skip(self, now_ms: int) -> None:
        """Note that the batch has no jobs."""
        self.started_ms = self.ended_ms = now_ms

    def start(self, job: Job, now_ms: int) -> OutputOperationInfo:
        """Note that a job starts; return its progress."""
        return self._update(job, start_time_ms=now_ms)

    def finish(self, job: Job, now_ms: int, error: BaseException | None) -> OutputOperationInfo:
        """Note that a job ended; ``unfinished`` counts the others. Return its progress."""
        self.unfinished -= 1
        self.failed = self.failed or error is not None
        if self.unfinished == 0:
            self.ended_ms = now_ms
        reason = None
        if error is not None:
            reason = "".join(traceback.format_exception(error))
            self.causes[job.output_id] = root_cause(error)
        return self._update(job, end_time_ms=now_ms, failure=reason)

    def drop(self, now_ms: int) -> bool:
        """Note that a job is skipped, so the batch fails; return whether it was the last one."""
        self.unfinished -= 1
        self.failed = True
        if self.unfinished == 0:
            self.ended_ms = now_ms
        return self.unfinished == 0

    def info(self) -> BatchInfo:
        """Return the information for listeners."""
        return BatchInfo(
            batch_id=self.batch.id,
            batch_time_ms=self.batch.time_ms,
            submission_time_ms=self.submitted_ms,
            processing_start_time_ms=self.started_ms,
            processing_end_time_ms=self.ended_ms,
            inputs=self.inputs,
            outputs=dict(self.outputs),
            failed=self.failed,
            limits=self.limits,
            due_time_ms=self.due_ms,
        )

    def _update(self, job: Job, **facts: Any) -> OutputOperationInfo:
        output = self.outputs[job.output_id] = replace(self.outputs[job.output_id], **facts)
        return output
