"""The Kafka receiver: a member of a consumer group that stores what it reads in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.kafka import COLUMNS
from penstock.kafka.client_conf import check_kafka_client
from penstock.receivers.kafka.options import KafkaOptions, Starting
from penstock.receivers.threaded import ThreadedReceiver

__all__ = ["KafkaReceiver"]


class KafkaReceiver(ThreadedReceiver):
    """Reads topics as a member of a consumer group; each record is in the journal exactly once.

    Records are values (bytes; of a tombstone empty ones), or rows of the ``columns`` asked for.

    Several receivers of a stream, in Spark or outside, share the topics' partitions as members of
    one group, also while receivers come and go, hang, or are killed. The journal decides where a
    partition is read on; the group's offsets are committed after the publish, for tools. Use a
    group for one stream only.

    Under a rate limit, or while the journal is full, partitions are paused; the member stays in its
    group.

    Args:
        topics: their names (a str is one), or patterns, which begin with ``^``. Topics and
            partitions that are created later are read from their beginning.
        conf: librdkafka's settings, with ``bootstrap.servers`` and ``group.id``.
            ``isolation.level`` is ``read_committed`` unless given, and
            ``partition.assignment.strategy`` ``cooperative-sticky``. With ``group.instance.id``
            members are static; the receiver's name is added to it. A secret is given as the path of
            a file where the receiver runs: ``sasl.password.file`` for ``sasl.password``.
        starting: where a stream that has nothing yet begins: ``"latest"`` or ``"earliest"`` where
            the group has committed nothing; or, whatever the group has committed, a datetime or
            ``{topic: {partition: offset}}``, other partitions beginning at their earliest offset.
        columns: of the records, among ``key``, ``value``, ``topic``, ``partition``, ``offset``,
            ``timestamp`` and ``headers``, with the types of Spark's Kafka source. A timestamp that
            Python does not have is null; bytes of a header's name that are not UTF-8 become U+FFFD.

    Raises:
        ConfigError: an argument cannot work, or confluent-kafka is missing.
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        conf: Mapping[str, Any],
        starting: Starting = "latest",
        *,
        columns: Sequence[str] | None = None,
    ) -> None:
        check_kafka_client("KafkaReceiver")
        self._options = KafkaOptions.of(topics, conf, starting, columns)
        self.schema = _schema(self._options.columns)
        if not self._options.has_files:
            self._check_settings()

    def __repr__(self) -> str:
        conf = self._options.conf
        brokers = conf.get("bootstrap.servers") or conf.get("metadata.broker.list")
        return f"KafkaReceiver({', '.join(self._options.topics)} of {brokers})"

    def checkStart(self) -> None:
        """Read the files of secrets, and check that the client takes the settings.

        Raises:
            ConfigError: a file cannot be read, or a setting is unknown or has a wrong value.
        """
        self._check_settings()

    def receive(self) -> None:
        """Store what comes until the receiver shall end; then release all partitions."""
        from penstock.receivers.kafka.consumption import Consumption  # needs confluent-kafka

        Consumption(self, self._options).run()

    def _check_settings(self) -> None:
        from penstock.kafka.reader import check_settings

        check_settings(self._options.member_conf("check"))


def _schema(columns: Sequence[str] | None) -> str | pa.Schema:
    return "binary" if columns is None else pa.schema([(c, COLUMNS[c]) for c in columns])
