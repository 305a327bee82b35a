"""The JobGenerator: begins a batch at each tick of the batch interval, when it can run.

While earlier batches run, new ticks are merged into the latest one, so a program that falls behind
takes larger batches from the journal instead of queueing late ones, and a restart has few batches
to run again (docs/adr/0001-batches-are-planned-when-they-can-run.md). Missed ticks have a batch if
windows need them (docs/adr/0007-missed-slides.md).

From the end of ``start`` to that of ``stop``, one thread (the event loop) takes all steps of
batches but those of running jobs, in the order of the events, so the bookkeeping of batches needs
no lock. penstock.streaming.engine.batch_lifecycle has the steps.

Source: ``org.apache.spark.streaming.scheduler.JobGenerator``.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from penstock.clock import Clock, SteadyClock
from penstock.errors import BatchFailedError, printable
from penstock.streaming.engine.batch_lifecycle import BatchLifecycle
from penstock.streaming.engine.job_scheduler import JobScheduler
from penstock.streaming.engine.jobs import JobSet
from penstock.streaming.engine.program_end import ProgramEnd
from penstock.streaming.engine.ticks import DueTick, DueTicks, LateWarning, RecurringTimer

_log = logging.getLogger(__name__)
_CHECK_LOOP_S = 1.0


class JobGenerator:
    """Begins batches as ticks and free slots allow.

    Args:
        batches: takes the steps of each batch.
        scheduler: runs the jobs of batches; the generator starts it.
        end: knows whether the program still runs batches.
        clock: gives batches their times.
        steady: measures how late they are.
        interval_ms: the batch interval.
        merge_ticks: whether a tick replaces one that still waits.
        concurrent: the number of batches that may run at once.
    """

    def __init__(
        self,
        batches: BatchLifecycle,
        scheduler: JobScheduler,
        end: ProgramEnd,
        clock: Clock,
        steady: SteadyClock,
        *,
        interval_ms: int,
        merge_ticks: bool,
        concurrent: int,
    ) -> None:
        self._batches = batches
        self._scheduler = scheduler
        self._end = end
        self._clock = clock
        self._steady = steady
        self._interval_ms = interval_ms
        self._late = LateWarning(interval_ms, steady.time_ms())
        self._rest_begun = False
        self._free_slots = concurrent
        self._due = DueTicks(merge_ticks)
        self._events: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._loop = threading.Thread(
            target=self._run_events, name="penstock-generator", daemon=True
        )
        self._timer = RecurringTimer(
            clock,
            interval_ms,
            lambda time_ms: self._events.put(partial(self._tick, time_ms)),
            "penstock-batch-timer",
        )

    def start(self) -> None:
        """Run interrupted batches again, then begin a new batch at each interval.

        Raises:
            RecoveryMismatchError: a planned batch does not match the program's inputs.
            BatchFailedError: the jobs of an interrupted batch cannot be made.
        """
        first_ms, again, missed = self._batches.resume(self._clock.time_ms())
        self._due.add_missed(missed)
        self._scheduler.start(lambda job_set: self._events.put(partial(self._ended, job_set)))
        for batch in again:
            self._submit(self._batches.begin_again(batch))
        self._events.put(self._begin_due)
        self._loop.start()
        self._timer.start(first_ms)

    def stop(self, deadline_s: float | None) -> bool:
        """Stop beginning batches. With a deadline, first process all received records.

        That is batch after batch where limits cut them.

        Args:
            deadline_s: how long batches may run, on the monotonic clock of Python.

        Returns:
            Whether all batches have ended, True without a deadline.
        """
        next_ms = self._timer.stop()
        done = True
        if deadline_s is not None:
            done = self._wait_idle(deadline_s)
            rest = True
            while done and rest:
                rest = self._begins_rest(next_ms)
                done = self._wait_idle(deadline_s)  # also without a rest: due ticks had batches
                next_ms += self._interval_ms
        else:
            self._end.halt()
        self._events.put(None)
        if self._loop.ident is not None:  # None: the program failed before this step
            self._loop.join()
        return done

    def _wait_idle(self, deadline_s: float) -> bool:
        return self._scheduler.wait_idle(max(0.0, deadline_s - time.monotonic()))

    def _begins_rest(self, time_ms: int) -> bool:
        """Let the loop begin one of the last batches; return whether there was one to begin."""
        self._rest_begun = False
        reached = threading.Event()
        self._events.put(partial(self._begin_rest, time_ms))
        self._events.put(reached.set)
        while self._loop.is_alive() and not reached.wait(_CHECK_LOOP_S):
            pass
        return self._rest_begun

    # -- the event loop's thread --

    def _run_events(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                event()
            except BatchFailedError as e:
                _log.exception("Error generating jobs")
                self._end.batch_failed(e)
            except BaseException as e:  # the thread must not end before the program does
                # A batch that cannot be planned or made durable now must not be skipped.
                self._end.halt()
                error = printable(e)
                _log.error("The job generator failed and plans no more batches", exc_info=error)
                self._end.end(error)

    def _tick(self, time_ms: int) -> None:
        now_ms = self._steady.time_ms()
        self._late.check(self._due.late_since_ms, now_ms)
        self._due.add(time_ms, min(time_ms, now_ms))
        self._begin_due()

    def _ended(self, job_set: JobSet) -> None:
        self._free_slots += 1
        self._batches.forget(job_set)
        self._begin_due()

    def _begin_due(self) -> None:
        while self._free_slots > 0 and (tick := self._take_due()) is not None:
            self._begin(tick)

    def _begin_rest(self, time_ms: int) -> None:
        """Begin due batches, and one more if an input has more records than the last one took."""
        while (tick := self._take_due()) is not None:
            self._begin(tick)
        tick = DueTick(time_ms, self._steady.time_ms())
        self._rest_begun = self._begin(tick, only_with_records=True)

    def _take_due(self) -> DueTick | None:
        if (time_ms := self._due.unknown_before_ms) is not None:
            self._due.add_missed(self._batches.missed_before(time_ms))
        return self._due.take()

    def _begin(self, tick: DueTick, *, only_with_records: bool = False) -> bool:
        """Begin the batch of a tick; return whether there is one."""
        if self._end.halted:
            return False
        job_set = self._batches.begin(tick, only_with_records=only_with_records)
        if job_set is None:
            return False
        self._submit(job_set)
        self._batches.notify_and_release()
        return True

    def _submit(self, job_set: JobSet) -> None:
        self._free_slots -= 1
        self._scheduler.submit(job_set)
