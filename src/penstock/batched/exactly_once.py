"""The sinks of a program that write each batch once, and the batch that they are at.

A transactional sink skips what it has written when a batch runs again; so the batch must have the
same ranges then. Checkpoints alone do not say that: a restart would plan to the topics' ends of the
moment. Invariants:

1. A batch's number and ranges are durable (``planned``) before any of it is written, and stay until
   the next batch is planned, which is after its checkpoint: a program whose checkpoint stays behind
   (a log says less than was written) ends.
2. A restart whose checkpoints are where the planned batch begins runs it again, under its number.
   If the checkpoint of some partition has it, all of it was written, and the others get theirs.
   Checkpoints that are anywhere else end the start: what was written cannot be told. A rewind
   removes ``planned``; after it, what follows is a batch of its own.
3. Ranges have their places in a batch (the sinks' partitions) by their order.
4. A path has one id, which was created exclusively: two programs fence each other at the sinks. Who
   is fenced there plans nothing, nor who finds a plan that is not the last one of its own.
5. A program that lacks a sink of the batch makes no checkpoint while it waits: that would say that
   the sink has written it. A sink with another name would write it a second time.
6. No operation keeps elements or a state from batch to batch: a restart would not have them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.batched.checkpoints import Checkpoints
from penstock.batched.layout import Planned
from penstock.errors import RecoveryMismatchError, StorageError
from penstock.kafka import KafkaRange
from penstock.kafka.sink import Destination, SinkBatches, check_sink_settings

__all__ = ["ExactlyOnce", "Output", "Writing", "check_none_waits", "resume"]

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

    def of_task(self, index: int) -> dict[int, tuple[Destination, int, int, bool]]:
        """Return by node what the range at a place is written with; see ``write_partition``."""
        is_done = index in self.done
        return {node: (*sink, index, is_done) for node, sink in self.sinks.items()}


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
        self._last = Planned("", -1, ())
        self._may_be_written = False

    def open(self, ends: Ends) -> list[KafkaRange]:
        """Take the sinks over; return the ranges of the batch that runs again, if one does.

        Raises:
            KafkaError: the brokers do not answer or refuse, or forgot what that batch wrote.
            RecoveryMismatchError: that batch has topics or sinks that the program does not have,
                or the checkpoints are not at it.
        """
        self._last = self._checkpoints.first_planned(Planned(str(uuid.uuid4()), -1, ()))
        _check_topics(self._last, ends)
        again, missing = resume(self._last, ends)
        if again:
            _check_sinks(self._last, (output.name for output in self._outputs.values()))
        self._checkpoints.complete(missing)
        self._may_be_written = bool(again)
        for node, output in self._outputs.items():
            sink = SinkBatches(dict(output.settings), output.topic, self._last.id, output.name)
            self._sinks[node] = sink
            sink.open([self._last.batch] if again and self._last.is_of(output.name) else [])
        return again

    def begin(self, ranges: Iterable[KafkaRange]) -> Writing:
        """Make a batch durable, and begin to write it.

        Raises:
            ConcurrentDriverError: another program has taken a sink over.
            KafkaError: the brokers do not answer or refuse.
        """
        ranges, again, last = tuple(ranges), self._may_be_written, self._last
        number, self._may_be_written = last.batch if again else last.batch + 1, False
        sinks, done = {}, set[int]()
        for node, sink in self._sinks.items():
            written = again and last.is_of(self._outputs[node].name)
            attempt = sink.begin(number, len(ranges), may_be_written=written)
            sinks[node] = (sink.destination(number), attempt.number)
            done |= attempt.done
        if not again:
            names = tuple(sorted(output.name for output in self._outputs.values()))
            self._last = Planned(last.id, number, ranges, names)
            self._checkpoints.plan(self._last, last)
        return Writing(sinks, frozenset(done))

    def check_done(self) -> None:
        """Check that the batch that was written is in a checkpoint.

        Raises:
            StorageError: it is not, so the next batch must not be planned.
        """
        ends = self._checkpoints.ends()
        for each in self._last.ranges:
            if ends[each.topic].get(each.partition, 0) < each.end_offset:
                raise StorageError(
                    f"{each.name} was written up to {each.end_offset}, and no checkpoint has it: "
                    "its log says that less was read, or is gone",
                    operation="add checkpoint",
                    ids={"batch": self._last.batch},
                    hint="start again: the batch is then verified, not written twice",
                )

    def close(self) -> None:
        """End."""
        for sink in self._sinks.values():
            sink.close()


def resume(planned: Planned, ends: Ends) -> tuple[list[KafkaRange], list[KafkaRange]]:
    """Return the ranges to run again, and those that only a checkpoint is missing of. Pure.

    Raises:
        RecoveryMismatchError: a checkpoint is neither where the batch begins nor behind it.
    """
    waiting, is_written = list[KafkaRange](), False
    for each in sorted(planned.ranges):
        # A partition that no checkpoint has yet was new in the batch.
        at = ends.get(each.topic, {}).get(each.partition, each.start_offset)
        if at == each.start_offset:
            waiting.append(each)
        elif at >= each.end_offset:
            is_written = True
        else:
            raise RecoveryMismatchError(
                f"{each.name} is done up to {at}, and the batch that was planned last has "
                f"[{each.start_offset}, {each.end_offset}) of it: which of these were written is "
                "unknown",
                operation="recover",
                ids={"batch": planned.batch},
                hint="move checkpoints with `penstock checkpoint rewind`, not by hand: "
                "later records are then written, even if they were before",
            )
    return ([], waiting) if is_written else (waiting, [])


def check_none_waits(checkpoints: Checkpoints, ends: Ends) -> None:
    """Check that a program without exactly-once sinks passes no batch that waits for such.

    Raises:
        LogFormatError: the file of that batch is damaged.
        RecoveryMismatchError: one waits.
    """
    planned = checkpoints.planned() or Planned("", -1, ())
    for each in planned.ranges:
        at = ends.get(each.topic, {}).get(each.partition, each.start_offset)
        if each.topic in ends and at < each.end_offset:
            raise _lacks_sinks(planned, planned.sinks)


def _check_sinks(planned: Planned, sinks: Iterable[str]) -> None:
    if lacking := sorted(set(planned.sinks).difference(sinks)):
        raise _lacks_sinks(planned, lacking)


def _lacks_sinks(planned: Planned, sinks: Iterable[str]) -> RecoveryMismatchError:
    return RecoveryMismatchError(
        "the batch that was planned last waits for exactly-once sinks that this program does not "
        f"have: {', '.join(sinks)}",
        operation="recover",
        ids={"batch": planned.batch},
        hint="start once with sinks of these names; or drop the batch by `penstock checkpoint "
        "rewind`, which may target the present offsets: its records are then read like any "
        "others, even if they were written before",
    )


def _check_topics(planned: Planned, ends: Ends) -> None:
    if gone := sorted({each.topic for each in planned.ranges} - ends.keys()):
        raise RecoveryMismatchError(
            f"the batch that was planned last has records of {', '.join(gone)}, which this program "
            "does not read: whether it was written is not known",
            operation="recover",
            ids={"batch": planned.batch},
            hint="start once with the topics as before",
        )
