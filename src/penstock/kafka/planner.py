"""Plans the ranges of a direct stream, on the driver.

Each plan asks the brokers for the topics as they are now. What it finds lost or created anew is
durable (``losses``, ``generations``) before it returns, and so before ``offsets/N``.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from penstock.errors import KafkaError
from penstock.kafka.advance import OnDataLoss, advance, data_loss_error
from penstock.kafka.cut_off import settle
from penstock.kafka.generations import Generations
from penstock.kafka.losses import LossLog, LostRange, leave_out, reached
from penstock.kafka.offsets import KafkaRange, partition_name, ranges_between, split_name
from penstock.kafka.pass_over import PassOver
from penstock.kafka.topics import TopicFacts, Topics
from penstock.model import Offsets
from penstock.storage import Storage

_log = logging.getLogger(__name__)


class Planner:
    """Plans ranges. Not thread-safe.

    Args:
        topics: the subscribed topics.
        storage: the checkpoint location.
        stream: the input's name.
        on_data_loss: what happens with lost records.

    Raises:
        LogFormatError, StorageError: what earlier runs noted cannot be read.
    """

    def __init__(
        self, topics: Topics, storage: Storage, stream: str, on_data_loss: OnDataLoss
    ) -> None:
        self._topics = topics
        self._generations = Generations(storage, stream)
        self._current: dict[str, int] = {}
        self._gone: set[str] = set()
        self._losses = LossLog(storage, stream)
        self._lost = self._losses.read()
        self._on_data_loss = on_data_loss
        self._planned: tuple[Offsets, Offsets] = ({}, {})  # the last plan's start, and its starts

    def scan(self) -> TopicFacts:
        """Return the topics as they are now, with partitions by their names with generations.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
            StorageError, ConcurrentDriverError: ids cannot be made durable.
        """
        known = {*self._generations.topics, *self._current}
        facts = self._topics.scan(may_be_gone=known)
        self._current |= self._generations.observe(facts.ids)
        self._say_gone(known.intersection(self._topics.named).difference(facts.ids))
        return replace(facts, begins=self._named(facts.begins), ends=self._named(facts.ends))

    def _say_gone(self, topics: set[str]) -> None:
        for topic in sorted(topics - self._gone):
            _log.warning(
                "Topic %s does not exist any more: its offset is kept until it is back",
                topic,
            )
        self._gone = topics

    def at_time(self, time_ms: int, facts: TopicFacts) -> Offsets:
        """Return each partition's first offset at or after a time, its end without one.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        return self._topics.at_time(time_ms, facts)

    def latest(self, start: Offsets, done: Offsets | None = None) -> Offsets:
        """Return the end of a batch that takes all records after ``start``.

        Args:
            start: the end of the batch before.
            done: the end of the newest batch that is committed; None: all are. That a log was cut
                off counts when the batches before it are done: they leave out what they lost.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
            KafkaDataLossError: records after ``start`` are lost, and that ends the program.
            StorageError, ConcurrentDriverError: what is lost cannot be made durable.
        """
        facts = self.scan()
        self._generations.check(start)
        positions = reached(start, self._lost)
        ends = settle(self._topics, positions, facts.ends)
        cut = {name: end for name, end in ends.items() if end < positions.get(name, 0)}
        if done is not None and self._on_data_loss != "fail":
            waits = {name: positions[name] for name in cut if done.get(name) != start[name]}
            ends, cut = {**ends, **waits}, {n: end for n, end in cut.items() if n not in waits}
        plan = advance(start, facts.begins, ends, self._on_data_loss, self._lost)
        if cut:
            self._losses.cut_off(cut)
        self._note(plan.losses)
        self._planned = (start, plan.starts)
        return plan.ends

    def starts(self, start: Offsets, end: Offsets) -> Offsets:
        """Return from where the batch reads that was planned last, from ``start`` to ``end``.

        What it passes over counts for no limit. A new partition has no records yet.
        """
        planned, starts = self._planned
        return {**end, **start, **(starts if planned == start else {})}

    def look_again(self) -> None:
        """Notice topics that were created anew since the batch was planned, before it is read.

        Not while the brokers do not answer.

        Raises:
            StorageError, ConcurrentDriverError: ids cannot be made durable.
        """
        with suppress(KafkaError):
            ids = self._topics.ids(may_be_gone={*self._generations.topics, *self._current})
            self._current |= self._generations.observe(ids)

    def ranges(self, start: Offsets, end: Offsets) -> list[KafkaRange]:
        """Return the ranges between two offset maps, with what of them is lost.

        Raises:
            KafkaDataLossError: a topic was created anew since, and that ends the program.
            RecoveryMismatchError: it is not known of which topic the offsets are.
            StorageError: what is lost cannot be made durable.
        """
        self._generations.check(end)
        ranges = ranges_between(start, end)
        anew = [r for r in ranges if self._current.get(r.topic, r.generation) != r.generation]
        left = [part for each in leave_out(anew, self._lost) for part in each.held()]
        self._note([_gone(part) for part in left])
        return leave_out(ranges, self._lost)

    @property
    def pass_over(self) -> PassOver | None:
        """What tasks do with records that are gone; None has them fail."""
        if self._on_data_loss == "fail":
            return None
        to_latest = self._on_data_loss == "latest"
        return PassOver(self._topics.settings, self._losses, to_latest=to_latest)

    def _note(self, losses: list[LostRange]) -> None:
        if not losses:
            return
        if self._on_data_loss == "fail":
            raise data_loss_error(losses[0], "read topic")
        self._losses.add(losses)
        self._lost = self._losses.read()

    def _named(self, offsets: Offsets) -> Offsets:
        places = {name: split_name(name) for name in offsets}
        return {
            partition_name(topic, partition, self._current[topic]): offsets[name]
            for name, (topic, partition) in places.items()
        }


def _gone(anew: KafkaRange) -> LostRange:
    what = (
        f"topic {anew.topic} was deleted and created anew: records "
        f"[{anew.start_offset}, {anew.end_offset}) of {anew.name} are gone"
    )
    return LostRange(anew.name, anew.start_offset, anew.end_offset, what)
