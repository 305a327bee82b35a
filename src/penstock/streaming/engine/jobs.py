"""The jobs of a batch, their progress, and what is reported of them. Plain state."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.checkpoint.batch_records import BATCHES_KEY, BatchRecord, JobRecord, encode_records
from penstock.clock import iso_time
from penstock.logs import Event
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
    """The time at which it was due."""
    submitted_ms: int
    limits: Mapping[str, InputLimit] = field(default_factory=dict)
    """The limits of the batch by input; unknown for a batch that runs again."""
    plan_ms: int | None = None
    """The time it took to plan; None for a batch that an earlier run planned."""
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


_MOST = 100
"""The most batches in one entry. An entry is planned about as often as a batch ends; of a burst of
failures, the newest are recorded."""


class BatchHistory:
    """Keeps each batch that ended for one entry. Thread-safe: a deque's methods are atomic."""

    def __init__(self) -> None:
        self._ended: deque[BatchRecord] = deque(maxlen=_MOST)

    def ended(self, job_set: JobSet) -> None:
        """Keep a batch that is committed or has failed."""
        start_ms, end_ms, due_ms = job_set.started_ms, job_set.ended_ms, job_set.due_ms
        names = {taken.stream_name: taken.num_records for taken in job_set.inputs.values()}
        record = BatchRecord(
            job_set.batch.id,
            due_ms,
            None if start_ms is None else max(start_ms - due_ms, 0),
            None if end_ms is None else max(end_ms - due_ms, 0),
            plan_ms=job_set.plan_ms,
            commit_ms=job_set.commit_ms,
            is_failed=job_set.failed,
            is_rerun=job_set.plan_ms is None,
            records=names,
            jobs=tuple(_job(job_set, output_id) for output_id in sorted(job_set.outputs)),
        )
        self._ended.append(record)

    def not_begun(self, batch: Batch, due_ms: int, error: BaseException) -> None:
        """Keep a batch that failed before it had jobs."""
        job = JobRecord("make jobs", None, root_cause(error))
        self._ended.append(BatchRecord(batch.id, due_ms, None, None, is_failed=True, jobs=(job,)))

    def conf(self) -> dict[str, str]:
        """Return the batches for the next entry of the offset log; each once."""
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        return {BATCHES_KEY: encode_records(ended)} if ended else {}


def _job(job_set: JobSet, output_id: int) -> JobRecord:
    info = job_set.outputs[output_id]
    start, end = info.start_time_ms, info.end_time_ms
    took_ms = None if start is None or end is None else end - start
    return JobRecord(info.output_name, took_ms, job_set.causes.get(output_id))


def log_line(info: BatchInfo) -> Event:
    """Return the log's line of a batch; docs/logs.md describes it."""
    return Event(
        "batch",
        {
            "batch_id": info.batch_id,
            "batch_time": iso_time(info.batch_time_ms),
            "result": "failed" if info.failed else "committed",
            "records": info.num_records,
            "scheduling_delay_ms": info.late_ms,
            "processing_ms": info.processing_delay_ms,
            "outputs": len(info.outputs),
        },
    )
