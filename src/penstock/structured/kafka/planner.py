"""Plans the batches of a query over topics.

Invariants:

1. A query begins with ``{}``, whenever it is asked. The query's first batch has no records: its end
   is where the records begin, resolved once. So that is durable in the query's checkpoint before a
   record is read, and a first batch that runs again is the same. It is recorded also while there
   is no topic yet: those that come later are new, and "latest" passes over none of their records.
2. The same holds for a partition that is new: one batch records where it begins, and the next one
   reads it.
3. Offsets have the form of Spark's Kafka source: each of the two continues from a checkpoint of the
   other. The end of the first batch has a mark, which that source skips:
   a first batch of Spark's began elsewhere than with ``{}``, so it is not run here.
4. What is passed over is in the loss log before the batch that passes over it (``kafka.planner``).
5. What is lost is noted under the source's place in the query, as Spark's own notes are, whatever
   topics it reads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition

from penstock.errors import ConfigError, KafkaDataLossError, KafkaError
from penstock.kafka.group import Group
from penstock.kafka.losses import LossLog
from penstock.kafka.offsets import KafkaRange, TopicIds, from_json, ids_in, split_ranges, to_json
from penstock.kafka.pass_over import PassOver
from penstock.kafka.planner import Planner
from penstock.model import Offsets
from penstock.patience import Patience
from penstock.storage import Storage, open_storage
from penstock.structured.kafka.bounds import start_of
from penstock.structured.kafka.options import KafkaOptions
from penstock.structured.kafka.topics import QueryTopics
from penstock.structured.planner import StreamPlanner
from penstock.structured.session import QueryFacts

FIRST = "(first batch)"
"""The mark: no topic's name, and without partitions."""
_AGAIN_S = 0.5
_log = logging.getLogger(__name__)


class KafkaPartition(InputPartition):
    """The range of one task.

    With the place of its source in the query: Spark makes the reader of tasks in another process
    than the one that plans, which alone knows it.
    """

    def __init__(self, wanted: KafkaRange, place: str) -> None:
        super().__init__(wanted)
        self.place = place


@dataclass
class _Plan:
    """What was planned last."""

    start: Offsets = field(default_factory=dict)
    available: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)


class KafkaPlanner(StreamPlanner):
    """Plans for one query.

    Args:
        options: of its source.
        place: the source's place in the query.
        query: what is known of the query.

    Raises:
        KafkaError: the brokers do not answer, or a topic is unknown.
        StorageError: the loss log cannot be read.
    """

    def __init__(
        self, options: KafkaOptions, place: str = "0", query: QueryFacts | None = None
    ) -> None:
        self._options = options
        self._place = place
        self._topics = Planner(
            QueryTopics(options), _kept_in(options, place), place, options.on_data_loss
        )
        self._ids: TopicIds = {}
        """The ids beside the offsets that were decoded or planned last."""
        self._patience = Patience("No new Kafka records are planned until the brokers answer")
        self._plan = _Plan()
        self._last: Offsets | None = None
        self.takes_all = False
        """Whether the batch that is planned is the only one of this run (Trigger.Once)."""
        self.has_begun = False
        """Whether the query's log has where it begins."""
        self._topics.scan()
        group = options.group(place if query is None else f"{query.id}-{place}")
        self._group = None if group is None else Group(options.settings, group)

    def encode(self, offsets: Offsets) -> dict[str, Any]:
        """Return ``{"<topic>": {"<partition>": end}}``."""
        return dict(to_json(offsets, self._ids))

    def decode(self, offset: dict[str, Any]) -> Offsets:
        """Return the partitions' ends; raises RecoveryMismatchError if it has none."""
        self._ids = ids_in(offset)
        return from_json(offset)

    def begin(self) -> Offsets:
        """Return nothing: invariant 1."""
        return {}

    def latest(self, start: Offsets) -> Offsets:
        """Return the ends of all partitions, of the first batch where they begin.

        While the brokers do not answer, nothing is new, for up to a minute. A query that ends when
        nothing is new waits for them instead, and so does one that has not begun.

        Raises:
            KafkaError: they have not answered for a minute.
            KafkaDataLossError: records after ``start`` are lost, and that ends the query.
            ConfigError: the query cannot begin where its options say.
        """
        while True:
            try:
                available = self._find(start) if self.has_begun else self._first()
                break
            except KafkaDataLossError:
                raise
            except KafkaError as error:
                self._patience.bear(error)
                if self.has_begun and not (self.ends_by_itself or self.takes_all):
                    self._plan = _Plan(start, start, start)
                    return start
                time.sleep(_AGAIN_S)  # nothing new would end the query as if it were done
        self._patience.recovered()
        if self._last is not None:  # what is created after it, is read by the next run
            wanted = start.keys() | self._last.keys()
            available = {name: end for name, end in available.items() if name in wanted}
        starts = self._topics.starts(start, available) if self.has_begun else available
        self._plan = _Plan(start, available, starts)
        return available

    def snapshot(self) -> Offsets:
        """Return the ends of all partitions."""
        self._last = self._topics.scan().ends
        return self._last

    def starts(self, start: Offsets, end: Offsets) -> Offsets:
        """Return from where records count: not what is lost, and nothing of a new partition."""
        return {**end, **self._plan.starts}

    @property
    def ends_by_itself(self) -> bool:
        """Whether the query ends with what there was (Trigger.AvailableNow)."""
        return self._last is not None

    @property
    def count(self) -> int:
        """How many offsets the last plan found that no batch has."""
        starts = self._plan.starts
        return sum(end - starts[name] for name, end in self._plan.available.items())

    def recorded(self) -> dict[str, Any]:
        """Return the offset of a batch without records, that records where partitions begin."""
        return self.encode({name: self._plan.starts[name] for name in self._plan.available})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[KafkaPartition]:
        """Return tasks of about equal records."""
        least = self._options.values["minPartitions"]
        self._topics.check_topics(_known(self._ids))
        ranges = self._topics.ranges(start, end)
        split = split_ranges(ranges, least_tasks=least)
        return [KafkaPartition(each, self._place) for each in split]

    def commit(self, end: Offsets) -> None:
        """Commit the group's offsets, by which tools tell the lag; nothing here reads them."""
        if self._group is not None:
            self._group.commit(end)

    def close(self) -> None:
        """Close the connections."""
        if self._group is not None:
            self._group.close()

    def _find(self, start: Offsets) -> Offsets:
        available = self._topics.latest(start, _known(self._ids))
        self._ids = self._topics.ids
        return available

    def _first(self) -> Offsets:
        facts = self._topics.scan()
        self._ids = facts.ids
        if not facts.ends:
            _log.warning("No topic matches %s yet", self._options.topics)
        starting = self._options.starting or "latest"
        return start_of(self._options, starting, facts, self._topics.at_time)


def _known(ids: TopicIds) -> dict[str, str]:
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}


def _kept_in(options: KafkaOptions, place: str) -> Storage:
    """Return where losses are noted: without a loss log this process's memory."""
    given = options.values["lossLog"]
    return open_storage(f"memory://penstock-kafka-{place}" if given is None else given)


def pass_over_of(options: KafkaOptions, place: str) -> PassOver | None:
    """Return what tasks do with records that are gone; None has them fail."""
    if options.on_data_loss == "fail":
        return None
    log = LossLog(_kept_in(options, place), place)
    return PassOver(options.settings, log, to_latest=options.on_data_loss == "latest")


def check_first(start: dict[str, Any], end: dict[str, Any]) -> None:
    """Refuse a first batch that another source has planned.

    Raises:
        ConfigError: it is one.
    """
    if not start and end and FIRST not in end:
        raise ConfigError(
            "the checkpoint's first batch was planned by another source, and is not committed: "
            "where it begins is in sources/0/0 of the checkpoint, which this source does not read",
            operation="plan batch",
            hint='let the query commit a batch with format("kafka") first; or begin with a new '
            "checkpoint, and startingOffsets as in sources/0/0",
        )
