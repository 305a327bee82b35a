"""The sinks of a program that write each batch once, and the batch that they are at.

A transactional sink skips what it has written when a batch runs again; so the batch must have the
same ranges then. Checkpoints alone do not say that: a restart would plan to the topics' ends of the
moment. Invariants:

1. A batch's number and ranges are durable (``planned``) before any of it is written, and stay until
   the next batch is planned, which is after its checkpoint.
2. A restart whose checkpoints are where the planned batch begins runs it again, under its number.
   If the checkpoints of some topics have it, all of it was written, and the others get theirs.
   If the checkpoints are anywhere else they were moved: what follows is a batch of its own.
3. Ranges have their places in a batch (the sinks' partitions) by their order.
4. No operation keeps elements or a state from batch to batch: a restart would not have them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.layout import Planned
from penstock.errors import RecoveryMismatchError
from penstock.kafka import KafkaRange
from penstock.kafka.sink import Destination, SinkBatches, check_sink_settings

__all__ = ["ExactlyOnce", "Output", "Writing", "resume"]

Ends = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Output:
    """A sink that writes exactly once."""

    topic: str
    settings: Mapping[str, object]
    name: str


@dataclass(frozen=True, slots=True)
class Writing:
    """What a batch's tasks need to write it."""

    sinks: Mapping[int, tuple[Destination, int]]
    """By node: the destination, and the attempt's number."""
    done: frozenset[int]
    """The places of ranges that a sink has written: they run first, and prove it."""


class ExactlyOnce:
    """The exactly-once sinks of a program, by node.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(self, outputs: Mapping[int, Output], checkpoints: Checkpoints) -> None:
        for output in outputs.values():
            check_sink_settings(output.settings, exactly_once=True)
        self._outputs = outputs
        self._checkpoints = checkpoints
        self._sinks: dict[int, SinkBatches] = {}
        self._last: Planned | None = None
        self._id = ""
        self._may_be_written = False

    def open(self, ends: Ends) -> list[KafkaRange]:
        """Take the sinks over; return the ranges of the batch that runs again, if one does.

        Raises:
            KafkaError: the brokers do not answer or refuse, or forgot what that batch wrote.
            RecoveryMismatchError: that batch has topics that the program does not read.
        """
        self._last = self._checkpoints.planned()
        if self._last is not None:
            _check_topics(self._last, ends)
        self._id = str(uuid.uuid4()) if self._last is None else self._last.id
        again, missing = resume(self._last, ends)
        self._checkpoints.complete(missing)
        self._may_be_written = bool(again)
        for node, output in self._outputs.items():
            sink = SinkBatches(dict(output.settings), output.topic, self._id, output.name)
            self._sinks[node] = sink
            sink.open([self._last.batch] if again and self._last is not None else [])
        return again

    def begin(self, ranges: Iterable[KafkaRange]) -> Writing:
        """Make a batch durable, and begin to write it.

        Raises:
            ConcurrentDriverError: another program has taken a sink over.
            KafkaError: the brokers do not answer or refuse.
        """
        ranges, again = list(ranges), self._may_be_written
        if not again:
            batch = 0 if self._last is None else self._last.batch + 1
            self._last = Planned(self._id, batch, tuple(ranges))
            self._checkpoints.plan(self._last)
        assert self._last is not None
        number, self._may_be_written = self._last.batch, False
        sinks, done = {}, set[int]()
        for node, sink in self._sinks.items():
            attempt = sink.begin(number, len(ranges), may_be_written=again)
            sinks[node] = (sink.destination(number), attempt.number)
            done |= attempt.done
        return Writing(sinks, frozenset(done))

    def close(self) -> None:
        """End."""
        for sink in self._sinks.values():
            sink.close()


def resume(planned: Planned | None, ends: Ends) -> tuple[list[KafkaRange], list[KafkaRange]]:
    """Return the ranges to run again, and those that only a checkpoint is missing of. Pure."""
    if planned is None:
        return [], []
    waiting, done = list[KafkaRange](), list[KafkaRange]()
    for _, part in groupby(sorted(planned.ranges), attrgetter("topic")):
        ranges = list(part)
        at = [ends.get(each.topic, {}).get(each.partition, 0) for each in ranges]
        if at == [each.start_offset for each in ranges]:
            waiting += ranges
        elif at == [each.end_offset for each in ranges]:
            done += ranges
        else:
            return [], []
    return ([], waiting) if done else (waiting, [])


def _check_topics(planned: Planned, ends: Ends) -> None:
    if gone := sorted({each.topic for each in planned.ranges} - ends.keys()):
        raise RecoveryMismatchError(
            f"the batch that was planned last has records of {', '.join(gone)}, which this program "
            "does not read: whether it was written cannot be told",
            operation="recover",
            ids={"batch": planned.batch},
            hint="start once with the topics as before",
        )
