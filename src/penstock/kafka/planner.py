"""Plans the ranges of a direct stream, on the driver.

Each plan asks the brokers for the topics as they are now. What it finds lost is durable
(``losses``) before it returns, and so before ``offsets/N``. A topic with another id than the plan
before had for it ends the program: its offsets are of other records (ADR 37).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import MappingProxyType

from penstock.errors import KafkaDataLossError, KafkaError
from penstock.kafka.advance import OnDataLoss, advance
from penstock.kafka.cut_off import check_ids, settle
from penstock.kafka.losses import LossLog, leave_out, reached
from penstock.kafka.offsets import KafkaRange, TopicIds, ranges_between, split_name
from penstock.kafka.pass_over import PassOver
from penstock.kafka.topics import TopicFacts, Topics
from penstock.model import Offsets
from penstock.storage import Storage

_log = logging.getLogger(__name__)
_WRITTEN_S = 10.0
"""How often the brokers are asked where what is written ends."""
_HANGING_S = 60.0
"""A transaction that is open for longer is told of."""


class Planner:
    """Plans ranges. Not thread-safe.

    Args:
        topics: the subscribed topics.
        storage: the checkpoint location.
        stream: the input's name.
        on_data_loss: what happens with lost records.

    Raises:
        StorageError: what earlier runs noted cannot be read.
    """

    def __init__(
        self, topics: Topics, storage: Storage, stream: str, on_data_loss: OnDataLoss
    ) -> None:
        self._topics = topics
        self.ids: TopicIds = {}
        """The ids of the topics that the last scan or plan has offsets of."""
        self._gone: set[str] = set()
        self._losses = LossLog(storage, stream)
        self._lost = self._losses.read()
        self._on_data_loss = on_data_loss
        self._planned: tuple[Offsets, Offsets] = ({}, {})  # the last plan's start, and its starts
        self.unreadable: Offsets = {}
        """Records from the first open transaction of a partition on, which cannot be read yet."""
        self._asked_s = -_WRITTEN_S
        self._stands: dict[str, tuple[int, float]] = {}
        """Where the end of a partition stands before an open transaction, and since when."""

    def scan(self, planned: Offsets = MappingProxyType({})) -> TopicFacts:
        """Return the topics as they are now; those of ``planned`` may be gone.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        known = {split_name(name)[0] for name in planned}.union(self.ids)
        facts = self._topics.scan(may_be_gone=known)
        self._say_gone(known.intersection(self._topics.named).difference(facts.ids))
        self.ids = {**self.ids, **facts.ids}
        return facts

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

    def latest(
        self, start: Offsets, ids: Mapping[str, str], done: Offsets | None = None
    ) -> Offsets:
        """Return the end of a batch that takes all records after ``start``.

        Args:
            start: the end of the batch before.
            ids: of its topics, where they are known.
            done: the end of the newest batch that is committed; None: all are. That a log was cut
                off counts when the batches before it are done: they leave out what they lost.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
            KafkaDataLossError: records after ``start`` are lost, and that ends the program; or a
                topic has another id.
            StorageError: what is lost cannot be made durable.
        """
        facts = self.scan(start)
        check_ids(self._topics, ids, facts.ids)
        self.ids = {**self.ids, **ids}
        positions = reached(start, self._lost)
        ends = settle(self._topics, positions, facts.ends)
        cut = {name: end for name, end in ends.items() if end < positions.get(name, 0)}
        if done is not None and self._on_data_loss != "fail":
            waits = {name: positions[name] for name in cut if done.get(name) != start[name]}
            ends, cut = {**ends, **waits}, {n: end for n, end in cut.items() if n not in waits}
        plan = advance(start, facts.begins, ends, self._on_data_loss, self._lost)
        if cut:
            self._losses.cut_off(cut)
        if plan.losses:
            self._losses.add(plan.losses)
            self._lost = self._losses.read()
        self._planned = (start, plan.starts)
        self._look_for_transactions(facts.ends)
        return plan.ends

    def starts(self, start: Offsets, end: Offsets) -> Offsets:
        """Return from where the batch reads that was planned last, from ``start`` to ``end``.

        What it passes over counts for no limit. A new partition has no records yet.
        """
        planned, starts = self._planned
        return {**end, **start, **(starts if planned == start else {})}

    def check_topics(self, ids: Mapping[str, str]) -> None:
        """Check that topics are those of a batch's plan, before it is read.

        Not while the brokers do not answer.

        Raises:
            KafkaDataLossError: a topic has another id.
        """
        try:
            check_ids(self._topics, ids, self._topics.ids(may_be_gone=ids))
        except KafkaDataLossError:
            raise
        except KafkaError as error:
            _log.debug("The ids of topics are not checked: %s", error)

    def ranges(self, start: Offsets, end: Offsets) -> list[KafkaRange]:
        """Return the ranges between two offset maps, with what of them is lost."""
        return leave_out(ranges_between(start, end), self._lost)

    @property
    def pass_over(self) -> PassOver | None:
        """What tasks do with records that are gone; None has them fail."""
        if self._on_data_loss == "fail":
            return None
        to_latest = self._on_data_loss == "latest"
        return PassOver(self._topics.settings, self._losses, to_latest=to_latest)

    def _look_for_transactions(self, ends: Offsets) -> None:
        """Find what is written and cannot be read; warn once of each transaction that hangs."""
        now_s = time.monotonic()
        if now_s - self._asked_s < _WRITTEN_S:
            return
        self._asked_s = now_s
        try:
            written = self._topics.written_ends(ends)
        except KafkaError as error:  # the next plan asks again
            _log.debug("It is not known where what is written ends: %s", error)
            return
        self.unreadable = {name: written[name] - end for name, end in ends.items()}
        self.unreadable = {name: count for name, count in self.unreadable.items() if count > 0}
        before, self._stands = self._stands, {}
        for name, count in self.unreadable.items():
            end, since_s = before.get(name, (-1, now_s))
            if end != ends[name]:
                end, since_s = ends[name], now_s
            elif now_s - since_s >= _HANGING_S:
                _log.warning(
                    "%s: %d records wait behind a transaction that is open at offset %d for more "
                    "than %.0f s (`kafka-transactions.sh find-hanging` tells whose it is)",
                    *(name, count, end, _HANGING_S),
                )
                since_s = float("inf")
            self._stands[name] = end, since_s
