"""Where a stream begins in partitions that its journal does not know yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from penstock.kafka.brokers import group_offsets
from penstock.kafka.offsets import at_given, split_name
from penstock.kafka.topics import Topics
from penstock.model import Offsets
from penstock.receivers.kafka.options import KafkaOptions

__all__ = ["starts", "topic_ids"]


def starts(options: KafkaOptions, settings: Mapping[str, Any], *, is_first: bool) -> Offsets:
    """Return where each partition of the topics begins that was not read before.

    Args:
        options: of the receiver.
        settings: of its member of the group.
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
    committed = group_offsets(settings, settings["group.id"])
    return {part: committed.get(part, begin) for part, begin in chosen.items()}


def topic_ids(settings: Mapping[str, Any], parts: Iterable[str]) -> Mapping[str, str | None]:
    """Return the ids of the topics that parts are of: one that is created anew has another id.

    Raises:
        KafkaError: the brokers do not answer, or refuse.
    """
    return Topics(settings, sorted({split_name(part)[0] for part in parts})).ids()
