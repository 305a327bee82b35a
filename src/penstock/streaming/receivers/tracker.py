"""The ReceiverTracker: keeps each receiver of the program running as a long Spark task.

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
from dataclasses import replace
from functools import partial

from pyspark import SparkContext

from penstock.errors import ReceiverError
from penstock.rate import ReceiveLimit
from penstock.receivers import ReceiverSettings, receiver_bounds
from penstock.streaming.core.listener import ListenerBus
from penstock.streaming.inputs.input import InputDStream, ReceiverFeed
from penstock.streaming.receivers.events import ReceiverWatch
from penstock.streaming.receivers.placement import ReceiverPlacement, live_executors
from penstock.streaming.receivers.runner import ReceiverRun, ReceiverRunner, command_of
from penstock.streaming.receivers.slots import check_slots, executor_count, task_slots
from penstock.streaming.receivers.takeover import take_over

__all__ = ["ReceiverTracker"]


class ReceiverTracker:
    """Starts, restarts and stops the receivers of one program.

    Raises:
        ConfigError: they would take every task slot; or a stream's bounds are too small for them.
    """

    def __init__(
        self,
        sc: SparkContext,
        inputs: Sequence[InputDStream],
        settings: ReceiverSettings,
        bus: ListenerBus,
        on_error: Callable[[BaseException], None],
        limit_of: Callable[[str], ReceiveLimit],
    ) -> None:
        self._feeds = [(i, feed) for i in inputs if (feed := i.feed) is not None]
        count = sum(len(feed.receivers) for _, feed in self._feeds)
        master, conf = str(sc.master), dict(sc.getConf().getAll())
        check_slots(count, task_slots(master, conf, os.cpu_count() or 1))
        self._settings = {
            i.name: _divided(settings, len(feed.receivers)) for i, feed in self._feeds
        }
        self._watch = ReceiverWatch(bus, settings.poll_ms)
        # One alone may run anywhere; several are kept apart.
        placement = ReceiverPlacement(
            partial(live_executors, sc) if count > 1 else list,
            expected=min(count, executor_count(master, conf) or 0) if count > 1 else 0,
        )
        self._run = ReceiverRun(uuid.uuid4().hex, sc, settings, placement, self._watch, on_error)
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
        for stream, feed in self._feeds:
            self._runners[stream.name] = self._make_runners(stream, feed)
        if self._runners:
            self._watch.start()
        for runner in self._all():
            runner.start()

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
        self._watch.stop()
        if late:
            raise ReceiverError(
                f"receivers {', '.join(late)} did not stop within {timeout_s:g} s",
                operation="stop receivers",
                hint="their onStop hangs or their executor is gone; nothing acked is lost",
            )

    def _make_runners(self, stream: InputDStream, feed: ReceiverFeed) -> list[ReceiverRunner]:
        limit = self._limit_of(stream.name)
        tasks = take_over(
            feed.journal,
            feed.receivers,
            self._run.id,
            command_of(limit),
            self._settings[stream.name],
        )
        for task in tasks:
            self._watch.watch(stream.id, task, alone=len(tasks) == 1)
        return [ReceiverRunner(self._run, task, limit) for task in tasks]

    def _all(self) -> list[ReceiverRunner]:
        return [runner for runners in self._runners.values() for runner in runners]


def _divided(settings: ReceiverSettings, receivers: int) -> ReceiverSettings:
    """Return the settings of each of a stream's receivers: its equal part of the bounds."""
    bounds = settings.bounds
    part = receiver_bounds(bounds.max_bytes, bounds.max_lag_records, receivers)
    return replace(settings, bounds=part)
