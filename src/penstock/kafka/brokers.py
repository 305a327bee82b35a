"""What brokers tell tools: topics with their offsets, and the offsets of groups."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.errors import KafkaDataLossError
from penstock.kafka.client_conf import resolve
from penstock.kafka.cut_off import check_ids
from penstock.kafka.failures import client_made, error_of, kafka_error
from penstock.kafka.offsets import from_json, ids_in, partition_name, split_name
from penstock.kafka.topics import TopicFacts, Topics
from penstock.model import Offsets

_TIMEOUT_S = 10.0
_ALL = re.compile(".*")


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the brokers have of a partition now: records ``[begin, written)``."""

    begin: int
    end: int
    """Where the records end that can be read: before the first open transaction."""
    written: int

    def behind(self, position: int) -> int:
        """Return how many of them come at or after a position."""
        return max(0, self.written - max(position, self.begin))


def partition_facts(
    settings: Mapping[str, Any], topics: Sequence[str] = (), *, may_be_gone: bool = False
) -> dict[str, PartitionFacts]:
    """Return what the brokers have of topics, of all without names.

    Args:
        settings: of the clients.
        topics: their names.
        may_be_gone: leave out those that do not exist.

    Raises:
        KafkaError: they do not answer, or refuse; a topic is unknown.
    """
    asked = Topics(settings, sorted({*topics}) or _ALL)
    return _facts(asked, asked.scan(topics if may_be_gone else ()))


def _facts(topics: Topics, scan: TopicFacts) -> dict[str, PartitionFacts]:
    written = topics.written_ends(scan.ends)
    return {
        part: PartitionFacts(scan.begins[part], end, max(end, written[part]))
        for part, end in scan.ends.items()
    }


def records_behind(settings: Mapping[str, Any], ends: Offsets) -> int:
    """Return how many records topics have after offsets of ``topic/partition``.

    Topics that are gone have none.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
    """
    topics = [split_name(part)[0] for part in ends]
    facts = partition_facts(settings, topics, may_be_gone=True) if topics else {}
    return sum(facts[part].behind(end) for part, end in ends.items() if part in facts)


def check_topics_have(settings: Mapping[str, Any], offset: Any) -> None:
    """Check that topics are those of an entry of an offset log, and have what comes after it.

    Raises:
        KafkaDataLossError: they do not.
        KafkaError: the brokers do not answer, or refuse.
    """
    begins = from_json(offset)
    names = sorted({split_name(part)[0] for part in begins})
    topics = Topics(settings, names)
    scan = topics.scan(names)
    check_ids(topics, ids_in(offset), scan.ids)
    facts = _facts(topics, scan)
    for part, begin in sorted(begins.items()):
        if part not in facts or not facts[part].begin <= begin <= facts[part].end:
            raise _not_held(part, begin, facts.get(part))


def _not_held(part: str, begin: int, facts: PartitionFacts | None) -> KafkaDataLossError:
    what, hint = f"{part} is not in Kafka any more", "choose another point"
    if facts is not None:
        gone = f"{facts.begin - begin:,} records are gone, " if begin < facts.begin else ""
        what = (
            f"{part} cannot continue from {begin}: {gone}the topic has [{facts.begin}, {facts.end})"
        )
        hint = f"choose {facts.begin} to {facts.end}"
    return KafkaDataLossError(what, operation="check topics", ids={"partition": part}, hint=hint)


def group_offsets(settings: Mapping[str, Any], group: str) -> dict[str, int]:
    """Return the offsets that a group has committed, by ``topic/partition``.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
    """
    # An AdminClient asks for them too, and a coordinator that does not answer in time, or is not
    # the coordinator any more, makes librdkafka end the process (its issue 4605).
    conf = {**resolve(settings), "group.id": group, "enable.auto.commit": False, "log_level": 0}
    with client_made(settings, conf):
        made = Consumer(conf)
    with closing(made) as consumer:
        try:
            topics = consumer.list_topics(timeout=_TIMEOUT_S).topics.items()
            places = [TopicPartition(topic, n) for topic, facts in topics for n in facts.partitions]
            found = consumer.committed(places, _TIMEOUT_S) if places else []
            if refused := next((place.error for place in found if place.error), None):
                raise KafkaException(refused)
        except KafkaException as raised:
            error = error_of(raised)
            raise kafka_error(error, "read group offsets", settings, group=group) from None
    return {partition_name(p.topic, p.partition): p.offset for p in found if p.offset >= 0}
