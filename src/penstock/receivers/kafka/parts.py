"""The parts of a source that receivers share: partitions of topics, as ``<topic>/<partition>``."""

from __future__ import annotations

from confluent_kafka import Message, TopicPartition

__all__ = ["part_of", "part_of_place", "place_of", "topic_of"]


def part_of(message: Message) -> str:
    """Return the part that a message is of."""
    return f"{message.topic()}/{message.partition()}"


def part_of_place(place: TopicPartition) -> str:
    """Return the part that a partition is."""
    return f"{place.topic}/{place.partition}"


def topic_of(part: str) -> str:
    """Return the topic that a part is of."""
    return part.rpartition("/")[0]


def place_of(part: str, offset: int | None = None) -> TopicPartition:
    """Return the partition that a part is, at an offset."""
    topic, _, partition = part.rpartition("/")
    if offset is None:
        return TopicPartition(topic, int(partition))
    return TopicPartition(topic, int(partition), offset)
