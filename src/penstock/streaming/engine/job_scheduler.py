"""The JobScheduler: runs the jobs of planned batches on Spark, in order.

A batch is committed when all its jobs succeeded. A job that raises leaves its batch uncommitted, to
run again after a restart; whether later batches run, the ProgramEnd decides.

Source: ``org.apache.spark.streaming.scheduler.JobScheduler``.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pyspark import SparkContext

from penstock.clock import SteadyClock
from penstock.driver.spark import any_task_runs, begin_jobs, cancel_jobs
from penstock.errors import ConcurrentDriverError, PenstockError, StorageError, printable
from penstock.patience import Patience
from penstock.streaming.core.events import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
)
from penstock.streaming.core.listener import ListenerBus
from penstock.streaming.engine.batch_lifecycle import BatchLifecycle
from penstock.streaming.engine.jobs import Job, JobSet, log_line
from penstock.streaming.engine.program_end import ProgramEnd

_log = logging.getLogger(__name__)
_CANCEL_EVERY_S = 0.1
_ASK_AGAIN_S = 1.0


class JobScheduler:
    """Runs job sets.

    Args:
        batches: takes the steps of a batch before its jobs and after them.
        end: knows whether jobs are still started.
        concurrent_jobs: how many run at once.
    """

    def __init__(
        self,
        sc: SparkContext,
        clock: SteadyClock,
        bus: ListenerBus,
        batches: BatchLifecycle,
        end: ProgramEnd,
        concurrent_jobs: int,
    ) -> None:
        self._sc = sc
        self._clock = clock
        self._bus = bus
        self._batches = batches
        self._end = end
        self._on_end: Callable[[JobSet], None] = lambda job_set: None
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._running = 0
        self._cancelling = False
        self._group = f"penstock-batches-{id(self):x}"
        self._queue: queue.SimpleQueue[tuple[JobSet, Job] | None] = queue.SimpleQueue()
        # Daemons, unlike a ThreadPoolExecutor's: a job that hangs does not keep the process alive.
        self._threads = [
            threading.Thread(target=self._run_jobs, name=f"penstock-job-{number}", daemon=True)
            for number in range(concurrent_jobs)
        ]

    def start(self, on_end: Callable[[JobSet], None]) -> None:
        """Start to run jobs; ``on_end`` is called when a batch is committed or has failed."""
        self._on_end = on_end
        for thread in self._threads:
            thread.start()

    def submit(self, job_set: JobSet) -> None:
        """Queue the jobs of a batch; one without any (no window ends with it) is done at once."""
        with self._lock:
            self._running += 1
        self._bus.post(StreamingListenerBatchSubmitted(job_set.info()))
        if not job_set.jobs:
            job_set.skip(self._clock.time_ms())
            self._bus.post(StreamingListenerBatchStarted(job_set.info()))
            self._settle(job_set)
        for job in job_set.jobs:
            self._queue.put((job_set, job))

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until all submitted batches have ended; return whether they ended in time."""
        with self._idle:
            return self._idle.wait_for(lambda: self._running == 0, timeout_s)

    def stop(
        self, cancel_timeout_s: float = 10.0, *, patience_s: float = 0.0
    ) -> list[threading.Thread]:
        """Run no more jobs, cancel those on Spark, and wait for threads and tasks to end.

        Args:
            cancel_timeout_s: how long to wait after that.
            patience_s: how long running jobs may take before they are cancelled.

        Returns:
            The threads that still run a job: a job that ignores its cancellation, or one that stops
            its own program.
        """
        self._end.halt()
        for _ in self._threads:
            self._queue.put(None)
        patient_s = time.monotonic() + patience_s
        for thread in self._threads:
            if _is_other(thread):
                thread.join(max(0.0, patient_s - time.monotonic()))
        if patience_s and (late := sum(map(_is_other, self._threads))):
            _log.warning(
                "%d job(s) did not end within %g s: cancelled; their batches run again after a "
                "restart",
                late,
                patience_s,
            )
        self._cancelling = True
        deadline_s = time.monotonic() + cancel_timeout_s
        cancelled: set[int] = set()
        for thread in self._threads:
            # A job may stop its own program, and a thread may submit another job each time.
            while _is_other(thread) and time.monotonic() < deadline_s:
                cancelled |= cancel_jobs(self._sc, self._group)
                thread.join(_CANCEL_EVERY_S)
        # Tasks may write, and Spark prints stack traces if it stops under them.
        while any_task_runs(self._sc, cancelled) and time.monotonic() < deadline_s:
            time.sleep(_CANCEL_EVERY_S)
        return [thread for thread in self._threads if thread.is_alive()]

    def _run_jobs(self) -> None:
        # Without it, an RDD checkpoint behind a newer one is never written (SPARK-6847).
        self._sc.setLocalProperty("spark.checkpoint.checkpointAllMarkedAncestors", "true")
        while (work := self._queue.get()) is not None:
            if self._end.halted:
                self._drop(*work)
            else:
                self._run(*work)

    def _run(self, job_set: JobSet, job: Job) -> None:
        error: BaseException | None = None
        with self._lock:
            now_ms = self._clock.time_ms()
            if job_set.begin(now_ms):
                self._bus.put(StreamingListenerBatchStarted(job_set.info()))
            self._bus.put(StreamingListenerOutputOperationStarted(job_set.start(job, now_ms)))
        self._bus.deliver()
        try:
            self._wait_for_check()
            begin_jobs(self._sc, self._group, str(job))
            job.run()
        except BaseException as e:
            error = printable(e)
        if error is not None:
            self._report(job, error)
        with self._lock:
            ended = job_set.finish(job, self._clock.time_ms(), error)
            last = job_set.unfinished == 0
            self._bus.put(StreamingListenerOutputOperationCompleted(ended))
        self._bus.deliver()
        if last:
            self._settle(job_set)

    def _wait_for_check(self) -> None:
        """Check that no other driver took over; wait while the storage fails: no job ran yet."""
        patience = Patience("A batch waits until the offset log can be listed")
        while True:
            try:
                return self._batches.confirm_sole()
            except StorageError as error:
                if self._end.halted:
                    raise
                patience.bear(error)
                time.sleep(_ASK_AGAIN_S)

    def _drop(self, job_set: JobSet, job: Job) -> None:
        """Skip a job that must not run any more."""
        with self._idle:
            ended = job_set.drop(self._clock.time_ms())
            if ended and job_set.started_ms is None:
                self._running -= 1
                self._idle.notify_all()
        if ended and job_set.started_ms is not None:
            self._settle(job_set)

    def _settle(self, job_set: JobSet) -> None:
        """Commit a batch that succeeded, and allow the next one."""
        began_ms = self._clock.time_ms()
        try:
            if not job_set.failed:
                self._batches.commit(job_set)
                job_set.commit_ms = self._clock.time_ms() - began_ms
        except ConcurrentDriverError as e:
            job_set.failed = True
            self._end.end(e)
        except Exception as e:
            job_set.failed = True
            self._end.batch_failed(e)
        if job_set.failed:
            with suppress(PenstockError):  # the fencing of this driver is reported already
                self._batches.fail(job_set)
        info = job_set.info()
        _log.info(log_line(info))
        self._bus.post(StreamingListenerBatchCompleted(info))
        self._on_end(job_set)
        with self._idle:
            self._running -= 1
            self._idle.notify_all()

    def _report(self, job: Job, error: BaseException) -> None:
        if isinstance(error, ConcurrentDriverError):
            self._end.end(error)
        elif self._cancelling:  # a cancelled job raises as requested
            _log.info("Job %s was cancelled by stop(); it runs again after a restart", job)
        else:
            self._batches.job_failed(job, error)


def _is_other(thread: threading.Thread) -> bool:
    """Whether a thread is alive, and not the one that asks."""
    return thread is not threading.current_thread() and thread.is_alive()
