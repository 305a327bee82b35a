"""The ReceiverTracker: keeps each receiver of a driver running as a long Spark task.

It talks to receivers by files only (penstock.receivers.control). A receiver whose task ended is
started again with back-off, on whatever executor has the fewest of them, unless this driver stopped
it, it asked for its end itself, or a later run took it over; the others of its stream continue
meanwhile.

Source: ``org.apache.spark.streaming.scheduler.ReceiverTracker``.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial

from pyspark import SparkContext

from penstock.driver.feed import ReceiverFeed, check_places, take_over
from penstock.driver.runner import ReceiverRun, ReceiverRunner, ReceiverWatch, command_of
from penstock.driver.spark import (
    ReceiverPlacement,
    check_slots,
    executor_count,
    live_executors,
    task_slots,
)
from penstock.errors import ReceiverError
from penstock.rate import ReceiveLimit
from penstock.receivers import ReceiverSettings, ReceiverTask


class ReceiverTracker:
    """Starts, restarts and stops the receivers of one driver.

    Args:
        sc: runs them.
        feeds: the receivers, by stream.
        settings: how they run; the bounds are those of each stream.
        watch: is told of them.
        on_error: called, by any thread, with what ends a receiver for good.
        limit_of: returns the first limit of each of a stream's receivers.
        others: how many receivers other trackers run on this SparkContext.

    Raises:
        ConfigError: they would take every task slot.
    """

    def __init__(
        self,
        sc: SparkContext,
        feeds: Sequence[ReceiverFeed],
        settings: ReceiverSettings,
        watch: ReceiverWatch,
        on_error: Callable[[BaseException], None],
        limit_of: Callable[[str], ReceiveLimit],
        others: int = 0,
    ) -> None:
        self._feeds = feeds
        count = sum(len(feed.receivers) for feed in feeds)
        master, conf = str(sc.master), dict(sc.getConf().getAll())
        check_slots(count + others, task_slots(master, conf, os.cpu_count() or 1))
        self._settings = settings
        self._watch = watch
        # One alone may run anywhere; several are kept apart.
        placement = ReceiverPlacement(
            partial(live_executors, sc) if count > 1 else list,
            expected=min(count, executor_count(master, conf) or 0) if count > 1 else 0,
        )
        self._run = ReceiverRun(uuid.uuid4().hex, sc, settings, placement, watch, on_error)
        self._limit_of = limit_of
        self._runners: dict[str, list[ReceiverRunner]] = {}

    def start(self) -> None:
        """Start all receivers; returns before they receive.

        From here on they are this run's: those of earlier runs end.

        Raises:
            FencedError: a later run claimed them meanwhile.
            StorageError: the journal cannot be reached.
            DamagedBlockError: the end of a writer that has to be sealed is unknown.
        """
        for feed in self._feeds:
            self._runners[feed.journal.name] = self._make_runners(feed)
        self._watch.begin([runner.task for runner in self._all()])
        for runner in self._all():
            runner.start()

    @property
    def running(self) -> list[ReceiverTask]:
        """The receivers that run, or will be started again."""
        return [runner.task for runner in self._all() if runner.is_alive()]

    def limit(self, stream: str, limit: ReceiveLimit) -> None:
        """Hold each of a stream's receivers, if it has any, to a limit; small changes are not sent.

        Raises:
            FencedError: a later run took one over.
            StorageError: it could not be written; the limit before stays effective.
        """
        for runner in self._runners.get(stream, []):
            runner.limit(limit)

    def stop(self, timeout_s: float) -> None:
        """Have all receivers publish what they hold, seal and end.

        Raises:
            ReceiverError: one did not end in time; its task was cancelled. What it had not acked is
                for its source to send again.
        """
        for runner in self._all():
            runner.command_stop()
        deadline_s = time.monotonic() + timeout_s
        late = [r.id for r in self._all() if not r.join(max(deadline_s - time.monotonic(), 0.1))]
        self._watch.end()
        if late:
            raise ReceiverError(
                f"receivers {', '.join(late)} did not stop within {timeout_s:g} s",
                operation="stop receivers",
                hint="their onStop hangs or their executor is gone; nothing acked is lost",
            )

    def _make_runners(self, feed: ReceiverFeed) -> list[ReceiverRunner]:
        limit = self._limit_of(feed.journal.name)
        check_places(feed.journal, feed.receivers)
        tasks = take_over(
            feed.journal,
            feed.receivers,
            self._run.id,
            command_of(limit),
            self._settings,
        )
        return [ReceiverRunner(self._run, task, limit) for task in tasks]

    def _all(self) -> list[ReceiverRunner]:
        return [runner for runners in self._runners.values() for runner in runners]
