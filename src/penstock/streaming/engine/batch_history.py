"""Reports batches that ended: in the next entry of the offset log, and in the log."""

from __future__ import annotations

from collections import deque

from penstock.checkpoint.batch_records import BATCHES_KEY, BatchRecord, JobRecord, encode_records
from penstock.clock import iso_time
from penstock.logs import Event
from penstock.root_cause import root_cause
from penstock.streaming.core.batch import Batch
from penstock.streaming.core.events import BatchInfo
from penstock.streaming.engine.jobs import JobSet

_MOST = 100
"""An entry is planned about as often as a batch ends; of a burst of failures the newest count."""


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
