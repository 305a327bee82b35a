"""The life of a batch: each step, in the order in which they happen.

    step       what happens                                                  thread
    ---------  ------------------------------------------------------------  -------------
    find ends  every input says up to where it has records                   generator's
    limit      each range is cut to the rate of its input                    generator's
    plan       offsets/N is durable, and no other driver was seen after it   generator's
    make jobs  one for each output; the JobScheduler runs them               generator's
    run        before each job, no other driver may have taken over          a job's
    commit     what a restart needs of the batch, then commits/N, durable    the last job's
    forget     RDDs that no later batch of this run needs are dropped        generator's
    notify     every input is notified of the commit, once it is confirmed   generator's
    release    data that no batch of any run needs is deleted                generator's

A step follows the one before it, also through a kill: batch N with offsets/N and without commits/N
runs again in the next run (penstock.checkpoint.batch_life). Batch N is confirmed, notified and
released after the plan of a later batch, whose listing confirms it, or at the end (``close``).

A batch fails if a job fails, a job cannot be made, or the commit fails. It is not committed, and no
later batch is notified or released before the next run has run it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from penstock.checkpoint import CheckpointLocation
from penstock.checkpoint.rollback import START_ELSEWHERE
from penstock.clock import SteadyClock, iso_time
from penstock.errors import LogGapError, printable
from penstock.streaming.core.batch import Batch, InputLimit
from penstock.streaming.core.rdd_retention import needed_after
from penstock.streaming.engine.batch_log import BatchLog
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.engine.jobs import BatchHistory, Job, JobSet
from penstock.streaming.engine.program_end import ProgramEnd, batch_failed, reason_of
from penstock.streaming.engine.rate_manager import RateManager
from penstock.streaming.engine.ticks import DueTick, first_tick
from penstock.streaming.recovery.run import RunCheckpoints

_log = logging.getLogger(__name__)
_LISTED_WITHIN_S = 2.0
"""The maximum age of the log's listing when a job starts; otherwise it is listed again."""


class BatchLifecycle:
    """Takes the steps of one program's batches.

    The threads of jobs call ``confirm_sole``, ``job_failed``, ``commit`` and ``fail``. One thread
    at a time, the generator's while batches run, calls everything else.

    Args:
        graph: the program's inputs, streams and outputs.
        location: has offsets/N and commits/N; this process is its driver.
        log: the same in terms of batches.
        rates: limits the ranges of each batch.
        graph_checkpoints: written when a batch was planned and when it is done.
        steady: measures how long steps take, and how late they are.
        end: receives the errors of jobs.
    """

    def __init__(
        self,
        graph: DStreamGraph,
        location: CheckpointLocation,
        log: BatchLog,
        rates: RateManager,
        graph_checkpoints: RunCheckpoints,
        steady: SteadyClock,
        end: ProgramEnd,
    ) -> None:
        self._graph = graph
        self._location = location
        self._log = log
        self._rates = rates
        self._graph_checkpoints = graph_checkpoints
        self._steady = steady
        self._end = end
        self._history = BatchHistory()
        self._newest_ms = log.previous_run_ms  # the time of the newest planned batch

    # -- before the first batch --

    def resume(self, now_ms: int) -> tuple[int, list[Batch], list[DueTick]]:
        """Continue from the previous run.

        Returns:
            The time of the first tick, the batches to run again, oldest first, and the ticks missed
            before the first one.

        Raises:
            RecoveryMismatchError: a planned batch does not match the program's inputs.
            LogGapError: the offset log lacks batches since which state has to be recomputed.
        """
        again = self._log.take_up()
        interval_ms = self._graph.batch_interval_ms
        first_ms = first_tick(now_ms, self._newest_ms, interval_ms, self._log.zero_ms or 0)
        if self._log.zero_ms is None:
            self._log.zero_ms = first_ms - interval_ms
        self._graph.initialize(self._log.zero_ms)
        _restore(self._graph, self._log, again)
        missed = self.missed_before(first_ms)
        # Before any batch, but after everything that a recovered graph needs from the location.
        self._write_graph(first_ms - interval_ms)
        return first_ms, again, missed

    def missed_before(self, next_ms: int) -> list[DueTick]:
        """Return the ticks since the newest batch, before ``next_ms``, that need a batch each.

        See docs/adr/0007-missed-slides.md.
        """
        newest_ms, interval_ms = self._newest_ms, self._graph.batch_interval_ms
        if newest_ms < 0:  # there is no batch that any tick would follow
            return []
        first_ms = next_ms - (next_ms - newest_ms - 1) // interval_ms * interval_ms
        missed = self._graph.missed_ticks(self._log.ends, range(first_ms, next_ms, interval_ms))
        if missed:
            _log.info(
                "%d batches are run for windows that ended between %s and %s, while no "
                "batches were planned",
                len(missed),
                iso_time(newest_ms),
                iso_time(next_ms),
            )
        now_ms = self._steady.time_ms()
        return [DueTick(time_ms, now_ms, is_missed=True) for time_ms in missed]

    def begin_again(self, batch: Batch) -> JobSet:
        """Return the jobs of a batch that an earlier run planned and did not commit.

        Raises:
            BatchFailedError: its jobs cannot be made.
        """
        _log.warning(
            "Batch %d (%s) runs again: it was planned, and its commit is missing "
            "(there is no commits/%d)",
            batch.id,
            iso_time(batch.time_ms),
            batch.id,
        )
        return self._make_jobs(batch, self._steady.time_ms(), {}, None)

    # -- find ends, limit, plan, make jobs --

    def begin(self, tick: DueTick, *, only_with_records: bool = False) -> JobSet | None:
        """Plan the batch of a tick, and return its jobs.

        None, and no batch, if it would have no records and was asked for only with some.

        Raises:
            BatchFailedError: its jobs cannot be made; the batch is planned, and has failed.
            ConcurrentDriverError: another driver has taken over.
            StorageError: it cannot be made durable.
        """
        began_ms = self._steady.time_ms()
        available = self._graph.find_ends(tick.time_ms, self._log.ends, tick.is_missed)
        sources, limits = self._rates.limit(available, tick.is_missed)
        if only_with_records and not self._graph.has_records(sources):
            return None
        conf = {**self._rates.conf(), **self._history.conf()}
        batch = self._log.plan(tick.time_ms, sources, conf, self._graph.oldest_id)
        plan_ms = self._steady.time_ms() - began_ms
        self._newest_ms = batch.time_ms
        self._graph_checkpoints.supersede(batch.time_ms, self._log.unfinished_ms())
        self._write_graph(batch.time_ms)
        return self._make_jobs(batch, tick.since_ms, limits, plan_ms)

    def _make_jobs(
        self, batch: Batch, due_ms: int, limits: Mapping[str, InputLimit], plan_ms: int | None
    ) -> JobSet:
        try:
            self._graph.set_ranges(batch)
            jobs = [
                Job(batch, number, output.call_site, run)
                for number, output in enumerate(self._graph.outputs)
                if (run := output.job(batch)) is not None
            ]
            inputs = self._graph.input_infos(batch)
        except (Exception, SystemExit) as e:  # a user's function of RDDs runs here
            self._location.fail(batch.id)
            self._history.not_begun(batch, due_ms, e)
            what = f"the jobs of batch {batch.id} ({iso_time(batch.time_ms)}) cannot be created"
            reason = printable(e)
            raise batch_failed(what, batch, reason, "make jobs") from reason
        self._location.run(batch.id)
        return JobSet(batch, jobs, inputs, due_ms, self._steady.time_ms(), limits, plan_ms)

    # -- run, commit or fail: the threads of jobs --

    def confirm_sole(self) -> None:
        """Confirm that this driver may still run jobs.

        Raises:
            ConcurrentDriverError: another driver has taken over.
            StorageError: the offset log cannot be listed.
        """
        self._location.confirm(_LISTED_WITHIN_S)

    def job_failed(self, job: Job, error: BaseException) -> None:
        """Report the error of a job: with its cause, which may be in the batch's own files."""
        reason = reason_of(error, partial(self._graph.find_damage, job.batch))
        _log.error("Error running job %s", job, exc_info=reason)
        self._end.batch_failed(batch_failed(f"job {job} failed", job.batch, reason))

    def commit(self, job_set: JobSet) -> None:
        """Commit a batch whose jobs have all succeeded.

        Raises:
            ConcurrentDriverError: another driver has taken over.
            StorageError: it cannot be made durable.
        """
        self._graph.update_checkpoint_data(job_set.batch)
        self._location.commit(job_set.batch.id)
        self._rates.batch_done(job_set)

    def fail(self, job_set: JobSet) -> None:
        """Record a batch that is not committed, because a job or the commit failed."""
        self._location.fail(job_set.batch.id)

    # -- forget, notify, release --

    def forget(self, job_set: JobSet) -> None:
        """Record a batch that has ended, and drop the RDDs that no later one of this run needs."""
        self._history.ended(job_set)
        if not job_set.failed:
            self._write_graph(job_set.batch.time_ms)
        if (newest := self._log.newest_ended()) is not None:
            self._graph.forget(newest.time_ms)

    def notify_and_release(self) -> None:
        """Notify inputs of confirmed commits, then delete data that no batch of any run needs."""
        newest = None
        for batch in self._log.take_confirmed():
            if not self._graph.notify_committed(batch):
                break
            self._log.notified(batch)
            newest = batch
        if newest is not None:
            self._graph.release(newest.time_ms)
            self._log.retire()

    def close(self) -> None:
        """Confirm the last commits and release their data, when all jobs have ended.

        Raises:
            ConcurrentDriverError: another driver has taken over.
        """
        self._location.confirm()
        self.notify_and_release()

    def _write_graph(self, time_ms: int) -> None:
        self._graph_checkpoints.write(time_ms, self._log.unfinished_ms())


def _restore(graph: DStreamGraph, log: BatchLog, again: Sequence[Batch]) -> None:
    """Continue an earlier run: its state, and the batches that the next ones need.

    ``again`` are the batches that run again, oldest first.

    Raises:
        CheckpointError: RDD checkpoints or state cannot be used; the error has the reason.
        LogGapError: the offset log lacks batches since which state has to be recomputed.
        PenstockError: records that should exist are missing.
    """
    for batch in again:
        graph.set_ranges(batch)
    done_ms = again[0].time_ms - 1 if again else max(log.previous_run_ms, 0)
    streams = list(graph.streams())
    for stream in streams:
        stream.restore_checkpoint_data(done_ms, log.previous_run_ms)
    needed = needed_after(streams, done_ms)
    recalled = (done_ms - stream.recall_ms for stream in graph.inputs)
    since_ms = min([done_ms, *needed.values(), *recalled])
    if since_ms >= done_ms:
        return
    earlier, complete = log.read_since(since_ms)
    if not complete:
        first_ms = earlier[0].time_ms if earlier else done_ms
        restarts = [s.restarts_from(needed[s], done_ms) for s in streams if s.must_checkpoint]
        _note_gone(min([done_ms, *restarts]), since_ms, first_ms)
    for batch in earlier:
        if batch not in again:
            graph.recall(batch, needed)


def _note_gone(state_ms: int, since_ms: int, first_ms: int) -> None:
    """Warn that needed batches before ``first_ms`` are missing; raise if state needs them."""
    if state_ms < first_ms:
        raise LogGapError(
            f"state was kept at {iso_time(state_ms)}, and the batches after it, before "
            f"{iso_time(first_ms)}, are no longer in the offset log",
            operation="recover state",
            hint=f"restore the offset log from a backup, or {START_ELSEWHERE}",
        )
    _log.warning(
        "Windows need batches since %s, and the batches before %s are no longer in the "
        "offset log; windows that need them lack their records",
        iso_time(since_ms),
        iso_time(first_ms),
    )
