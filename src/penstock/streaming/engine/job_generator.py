"""The JobGenerator: plans a batch at each tick of the batch interval and creates its jobs.

A batch is planned only when it can run. While earlier batches run, new ticks are merged into the
latest one, so a program that falls behind takes larger batches from the journal instead of queueing
late ones, and a restart has few batches to run again
(docs/adr/0001-batches-are-planned-when-they-can-run.md). Missed ticks have a batch if windows need
them (docs/adr/0007-missed-slides.md).

From the end of ``start`` to that of ``stop``, one thread (the event loop) does all planning and all
clean-up, in the order of the events, so the bookkeeping of batches needs no lock. The protocol
defines the order within a tick: get every input's latest offset, apply its limit, write offsets/N,
create the jobs and submit them.

Source: ``org.apache.spark.streaming.scheduler.JobGenerator``.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from functools import partial

from penstock.clock import Clock, SteadyClock, iso_time
from penstock.errors import BatchFailedError, printable
from penstock.streaming.core.batch import Batch, InputLimit
from penstock.streaming.engine.batch_history import BatchHistory
from penstock.streaming.engine.batch_log import BatchLog
from penstock.streaming.engine.due_ticks import DueTick, DueTicks, LateWarning
from penstock.streaming.engine.failures import batch_failed
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.engine.jobs import Job, JobSet
from penstock.streaming.engine.rate_manager import BatchPlan, RateManager
from penstock.streaming.engine.recurring_timer import RecurringTimer
from penstock.streaming.engine.resume import first_tick, restore, ticks_to_plan

_log = logging.getLogger(__name__)
_CHECK_LOOP_S = 1.0


class JobGenerator:
    """Drives a graph.

    Args:
        submit: takes the job set of each planned batch; ``batch_done`` is called when the batch
            succeeded, ``batch_failed`` when it failed, and then ``batch_ended``.
        rates: limits the ranges of each batch.
        clock: gives batches their times.
        steady: measures how late they are.
        concurrent: the number of batches that may run at once.
        checkpoint_graph: may have a graph checkpoint written, at the start, when a batch was
            planned and again when it is done; called with its time in ms, and the times of all
            batches that are not done.
        supersede_graph: has graph checkpoints of another graph replaced; called when a batch was
            planned, before its jobs are made, with its time in ms and the times as above.
        on_batch_error: called when the jobs of a batch cannot be created.
        on_error: called when planning failed; no batch is planned after that.
    """

    def __init__(
        self,
        graph: DStreamGraph,
        log: BatchLog,
        rates: RateManager,
        clock: Clock,
        steady: SteadyClock,
        *,
        concurrent: int,
        submit: Callable[[JobSet], None],
        checkpoint_graph: Callable[[int, tuple[int, ...]], None],
        supersede_graph: Callable[[int, tuple[int, ...]], None],
        on_batch_error: Callable[[BaseException], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._graph = graph
        self._log = log
        self._rates = rates
        self._history = BatchHistory()
        self._clock = clock
        self._steady = steady
        self._submit = submit
        self._checkpoint_graph = checkpoint_graph
        self._supersede_graph = supersede_graph
        self._on_batch_error = on_batch_error
        self._on_error = on_error
        self._halted = False
        self._late = LateWarning(graph.batch_interval_ms, steady.time_ms())
        self._rest_planned = False
        self._free_slots = concurrent
        self._due = DueTicks(merge=all(stream.merges_ticks for stream in graph.inputs))
        self._newest_ms = log.previous_run_ms  # the time of the newest planned batch
        self._events: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._loop = threading.Thread(
            target=self._run_events, name="penstock-generator", daemon=True
        )
        self._timer = RecurringTimer(
            clock,
            graph.batch_interval_ms,
            lambda time_ms: self._events.put(partial(self._tick, time_ms)),
            "penstock-batch-timer",
        )

    def start(self) -> None:
        """Run interrupted batches again, then plan a new batch at each interval.

        Raises:
            RecoveryMismatchError: a planned batch does not match the program's inputs.
        """
        again = self._log.take_up()
        interval_ms = self._graph.batch_interval_ms
        first_ms = first_tick(self._log, self._timer, self._clock.time_ms(), interval_ms)
        self._graph.initialize(self._log.begin(first_ms, interval_ms))
        restore(self._graph, self._log, again)
        self._due.add_missed(self._missed_before(first_ms))
        # Before any batch, but after everything that a recovered graph needs from the location.
        self._do_checkpoint(first_ms - interval_ms)
        for batch in again:
            _log.warning(
                "Batch %d (%s) runs again: it was planned, and its commit is missing "
                "(there is no commits/%d)",
                batch.id,
                iso_time(batch.time_ms),
                batch.id,
            )
            self._make_jobs(batch, self._steady.time_ms(), {}, None)
        self._events.put(self._generate_due)
        self._loop.start()
        self._timer.start(first_ms)

    def batch_done(self, job_set: JobSet) -> None:
        """Commit a batch whose jobs have all succeeded; called by the thread that settled it."""
        self._graph.update_checkpoint_data(job_set.batch)
        self._log.commit(job_set.batch)
        self._events.put(partial(self._do_checkpoint, job_set.batch.time_ms))

    def batch_failed(self, job_set: JobSet) -> None:
        """Record a batch that is not committed, because a job or the commit failed."""
        self._log.fail(job_set.batch)

    def halt(self) -> None:
        """Plan no more batches."""
        self._halted = True

    def batch_ended(self, job_set: JobSet) -> None:
        """Allow the next batch; called when all jobs of a batch have ended."""
        self._history.ended(job_set)
        self._events.put(self._forget)
        self._events.put(self._release_slot)

    def stop(self, wait_idle: Callable[[], bool] | None) -> bool:
        """Stop planning. With ``wait_idle``, first plan all received records, and wait for them.

        That is batch after batch where limits cut them, as long as ``wait_idle`` returns True.

        Returns:
            Whether all of them were processed (according to ``wait_idle``), True without
            ``wait_idle``.
        """
        next_ms = self._timer.stop()
        done = True
        if wait_idle is not None:
            done = wait_idle()
            rest = True
            while done and rest:
                rest = self._plans_rest(next_ms)
                done = wait_idle()  # also without a rest: ticks that were due were planned
                next_ms += self._graph.batch_interval_ms
        else:
            self._halted = True
        self._events.put(None)
        if self._loop.ident is not None:  # None: the program failed before this step
            self._loop.join()
        return done

    def close(self) -> None:
        """Release done batches, when all jobs have ended.

        Raises:
            ConcurrentDriverError: another driver has taken over.
        """
        self._log.confirm(0.0)
        self._release()

    def _missed_before(self, next_ms: int) -> list[DueTick]:
        now_ms = self._steady.time_ms()
        return ticks_to_plan(self._graph, self._log, self._newest_ms, next_ms, now_ms)

    # -- the event loop's thread --

    def _run_events(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                event()
            except BatchFailedError as e:
                _log.exception("Error generating jobs")
                self._on_batch_error(e)
            except BaseException as e:  # the thread must not end before the program does
                # A batch that cannot be planned or made durable now must not be skipped: plan no
                # more.
                self._halted = True
                error = printable(e)
                _log.error("The job generator failed and plans no more batches", exc_info=error)
                self._on_error(error)

    def _tick(self, time_ms: int) -> None:
        now_ms = self._steady.time_ms()
        self._late.check(self._due.late_since_ms, now_ms)
        self._due.add(time_ms, min(time_ms, now_ms))
        self._generate_due()

    def _release_slot(self) -> None:
        self._free_slots += 1
        self._generate_due()

    def _generate_due(self) -> None:
        while self._free_slots > 0 and (tick := self._take_due()) is not None:
            self._generate(tick)

    def _take_due(self) -> DueTick | None:
        if (time_ms := self._due.unknown_before_ms) is not None:
            self._due.add_missed(self._missed_before(time_ms))
        return self._due.take()

    def _generate(self, tick: DueTick) -> None:
        if not self._halted:
            began_ms = self._steady.time_ms()
            self._begin(tick, self._plan(tick.time_ms, tick.is_missed), began_ms)

    def _plan(self, time_ms: int, is_missed: bool = False) -> BatchPlan:
        if is_missed:
            return self._rates.plan_missed(self._graph.plan_missed(time_ms, self._log.ends))
        return self._rates.plan(self._graph.plan(time_ms, self._log.ends))

    def _begin(self, tick: DueTick, plan: BatchPlan, began_ms: int) -> None:
        conf = {**self._rates.conf(), **self._history.conf()}
        batch = self._log.plan(tick.time_ms, plan.sources, conf, self._graph.oldest_id)
        plan_ms = self._steady.time_ms() - began_ms
        self._newest_ms = batch.time_ms
        self._supersede_graph(batch.time_ms, self._log.unfinished_ms())
        try:
            self._make_jobs(batch, tick.since_ms, plan.limits, plan_ms)
        finally:
            self._do_checkpoint(batch.time_ms)
        self._release()

    def _generate_rest(self, time_ms: int) -> None:
        """Plan due batches, and one more if an input has more records than the last one took."""
        while (tick := self._take_due()) is not None:
            self._generate(tick)
        began_ms = self._steady.time_ms()
        plan = self._plan(time_ms)
        if self._graph.has_records(plan.sources) and not self._halted:
            self._begin(DueTick(time_ms, began_ms), plan, began_ms)
            self._rest_planned = True

    def _make_jobs(
        self, batch: Batch, due_ms: int, limits: Mapping[str, InputLimit], plan_ms: int | None
    ) -> None:
        try:
            self._graph.begin(batch)
            jobs = [
                Job(batch, number, output.call_site, run)
                for number, output in enumerate(self._graph.outputs)
                if (run := output.job(batch)) is not None
            ]
            inputs = self._graph.input_infos(batch)
        except (Exception, SystemExit) as e:  # a user's function of RDDs runs here
            self._log.fail(batch)
            self._history.not_begun(batch, due_ms, e)
            what = f"the jobs of batch {batch.id} ({iso_time(batch.time_ms)}) cannot be created"
            reason = printable(e)
            raise batch_failed(what, batch, reason, "make jobs") from reason
        self._log.run(batch)
        now_ms = self._steady.time_ms()
        self._submit(JobSet(batch, jobs, inputs, due_ms, now_ms, limits, plan_ms))
        self._free_slots -= 1

    def _forget(self) -> None:
        """Drop the RDDs that no batch of this run needs any more."""
        if (newest := self._log.newest_ended()) is not None:
            self._graph.forget(newest.time_ms)

    def _release(self) -> None:
        """Notify inputs of commits, then retire data that no batch of any run needs any more."""
        newest = None
        for batch in self._log.release():
            if not self._graph.notify_committed(batch):
                break
            self._log.notified(batch)
            newest = batch
        if newest is not None:
            self._graph.release(newest.time_ms)
            self._log.retire()

    def _do_checkpoint(self, time_ms: int) -> None:
        self._checkpoint_graph(time_ms, self._log.unfinished_ms())

    def _plans_rest(self, time_ms: int) -> bool:
        """Let the loop plan one of the last batches; return whether there was one to plan."""
        self._rest_planned = False
        self._events.put(partial(self._generate_rest, time_ms))
        self._sync()
        return self._rest_planned

    def _sync(self) -> None:
        """Wait until the loop has processed all earlier events."""
        reached = threading.Event()
        self._events.put(reached.set)
        while self._loop.is_alive() and not reached.wait(_CHECK_LOOP_S):
            pass
