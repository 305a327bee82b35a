"""The parts of a source that receivers share: partitions of topics, as ``<topic>/<partition>``."""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

from penstock.kafka.offsets import partition_name, split_name

__all__ = ["part_of", "part_of_place", "place_of", "topic_of"]


def part_of(message: Message) -> str:
    """Return the part that a message is of."""
    return partition_name(str(message.topic()), int(message.partition() or 0))


def part_of_place(place: TopicPartition) -> str:
    """Return the part that a partition is."""
    return partition_name(place.topic, place.partition)


def topic_of(part: str) -> str:
    """Return the topic that a part is of."""
    return split_name(part)[0]


def place_of(part: str, offset: int | None = None) -> TopicPartition:
    """Return the partition that a part is, at an offset."""
    place = TopicPartition(*split_name(part))
    if offset is not None:
        place.offset = offset
    return place
