"""The partitions that a query reads."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from penstock.errors import ConfigError
from penstock.kafka.offsets import partition_name
from penstock.kafka.topics import TopicFacts, Topics
from penstock.structured.kafka.options import KafkaOptions


class QueryTopics(Topics):
    """The topics of a query, with the partitions that it is assigned.

    Args:
        options: of its source.
    """

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(options.settings, options.topics)
        self._assigned = options.assigned and {
            partition_name(topic, partition)
            for topic, partitions in options.assigned.items()
            for partition in partitions
        }

    def scan(self, may_be_gone: Container[str] = ()) -> TopicFacts:
        """See Topics.

        Raises:
            ConfigError: a topic has not the partitions that are assigned.
        """
        facts = super().scan(may_be_gone)
        if self._assigned is None:
            return facts
        if facts.ids and (unknown := self._assigned - facts.ends.keys()):
            raise ConfigError(
                f"option assign names {', '.join(sorted(unknown))}, which does not exist",
                operation="list topics",
                ids={"option": "assign"},
                hint=f"the partitions are {', '.join(sorted(facts.ends))}",
            )
        begins, ends = (
            {name: at for name, at in offsets.items() if name in self._assigned}
            for offsets in (facts.begins, facts.ends)
        )
        return replace(facts, begins=begins, ends=ends)
