"""Offsets with the ids of the topics that they were read in: one value. Pure.

A topic that was deleted and created anew has its old name, and other records at the same offsets.
So whatever takes offsets from one place to another takes this, and what the brokers have is
compared with it (``brokers.check_topics_have``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import KafkaDataLossError
from penstock.kafka.offsets import split_name
from penstock.model import Offsets

TopicIds = Mapping[str, str | None]
"""By topic; None where the brokers have none (before Kafka 2.8)."""


@dataclass(frozen=True, slots=True)
class IdentifiedOffsets:
    """How far topics were read, and which topics these are."""

    ends: Offsets
    """By ``topic/partition``."""
    ids: Mapping[str, str]
    """By topic, where it is known: Spark's Kafka source and groups note no ids."""

    def check(self, now: TopicIds) -> None:
        """Check that the topics are still those that were read; ``now`` are the brokers' ids.

        Raises:
            KafkaDataLossError: a topic was created again.
        """
        for topic in sorted({split_name(part)[0] for part in self.ends}):
            if self.ids.get(topic) not in (None, now_id := now.get(topic)) and now_id is not None:
                raise KafkaDataLossError(
                    f"topic {topic} was deleted and created anew: the offsets are of the old one, "
                    "and the same offsets are other records' now",
                    operation="check topics",
                    ids={"topic": topic, "id": self.ids[topic], "new_id": now_id},
                    hint="choose another point, or name the other topics (--topic)",
                )
