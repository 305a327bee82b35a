"""Where a stream begins in partitions that its journal does not know yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException

from penstock.kafka.failures import error_of, kafka_error
from penstock.kafka.offsets import at_given
from penstock.kafka.topics import Topics
from penstock.model import Offsets
from penstock.receivers.kafka.options import KafkaOptions
from penstock.receivers.kafka.parts import part_of_place, place_of, topic_of

__all__ = ["starts", "topic_ids"]

_TIMEOUT_S = 10.0


def starts(
    options: KafkaOptions, settings: Mapping[str, Any], consumer: Consumer, *, is_first: bool
) -> Offsets:
    """Return where each partition of the topics begins that was not read before.

    Args:
        options: of the receiver.
        settings: of its member of the group.
        consumer: the member.
        is_first: whether the journal has nothing of these topics. Otherwise the partitions are
            new, and are read from their beginning.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
        ConfigError: offsets are given for a partition that does not exist.
    """
    topics = Topics(settings, options.pattern or options.topics)
    facts = topics.scan()
    begins, ends = facts.begins, facts.ends
    starting = options.starting
    if not is_first:
        return begins
    if isinstance(starting, datetime):
        return topics.at_time(round(starting.timestamp() * 1000), facts)
    if isinstance(starting, Mapping):
        return at_given(starting, begins, ends, "start Kafka receiver")
    chosen = begins if starting == "earliest" else ends
    return {**chosen, **_committed(consumer, settings, chosen)}


def _committed(consumer: Consumer, settings: Mapping[str, Any], parts: Offsets) -> dict[str, int]:
    """Return where the group is by its own offsets, where it has any."""
    if not parts:
        return {}
    try:
        found = consumer.committed([*map(place_of, parts)], _TIMEOUT_S)
    except KafkaException as error:
        group = settings["group.id"]
        raise kafka_error(error_of(error), "read group offsets", settings, group=group) from None
    return {part_of_place(p): p.offset for p in found if p.offset >= 0}


def topic_ids(settings: Mapping[str, Any], parts: Iterable[str]) -> Mapping[str, str | None]:
    """Return the ids of the topics that parts are of: one that is created anew has another id.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
    """
    return Topics(settings, sorted({*map(topic_of, parts)})).ids()
