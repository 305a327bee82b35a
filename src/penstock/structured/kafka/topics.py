"""The partitions that a query reads."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from penstock.errors import ConfigError
from penstock.kafka.offsets import partition_name
from penstock.kafka.topics import TopicFacts, Topics
from penstock.structured.kafka.options import KafkaOptions

__all__ = ["QueryTopics"]


class QueryTopics(Topics):
    """The topics of a query, with the partitions that it is assigned.

    A query that passes over lost records, and has no loss log, has no place for topics' ids. So it
    does without, as with brokers that have none: offsets then name topics as Spark's source does.
    """

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(options.settings, options.topics)
        self._without_ids = options.on_data_loss != "fail" and options.values["lossLog"] is None
        self._assigned = options.assigned and {
            partition_name(topic, partition)
            for topic, partitions in options.assigned.items()
            for partition in partitions
        }

    def ids(self, may_be_gone: Container[str] = ()) -> Mapping[str, str | None]:
        """See Topics."""
        ids = super().ids(may_be_gone)
        return dict.fromkeys(ids) if self._without_ids else ids

    def scan(self, may_be_gone: Container[str] = ()) -> TopicFacts:
        """See Topics.

        Raises:
            ConfigError: a topic has not the partitions that are assigned.
        """
        facts = super().scan(may_be_gone)
        if self._without_ids:
            facts = replace(facts, ids=dict.fromkeys(facts.ids))
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
