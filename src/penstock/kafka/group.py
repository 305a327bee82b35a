"""The offsets of a consumer group, written for tools that show how far a program is behind."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import KafkaError as ClientError

from penstock.bounded_call import returns_in_time
from penstock.kafka.client_conf import resolve
from penstock.kafka.failures import client_made, kafka_error
from penstock.kafka.offsets import split_name
from penstock.model import Offsets

END_S = 5.0
"""The time for which the end of a client is awaited. Clients wait for brokers as long as these do
not answer, and after a restart of brokers for their own threads (librdkafka issues 4519 and 4131).
"""

_log = logging.getLogger(__name__)


class Group:
    """Commits offsets of a group that nothing joins. Not thread-safe.

    Args:
        settings: of ``ClientConf.settings``.
        usual: the group's id if the settings name none.
    """

    def __init__(self, settings: Mapping[str, Any], usual: str) -> None:
        self._settings = {"group.id": usual, **settings}
        conf = {**resolve(self._settings), "enable.auto.commit": False, "log_level": 0}
        with client_made(self._settings, conf):
            self._consumer = Consumer({**conf, "on_commit": self._note})
        self._told = False

    def commit(self, ends: Offsets) -> None:
        """Commit how far the partitions were read, without waiting.

        What fails is logged, once, and is not tried again: the next commit says more.
        """
        places = [TopicPartition(*split_name(name), end) for name, end in ends.items()]
        self._consumer.poll(0)  # hands over what became of earlier ones
        self._consumer.commit(offsets=places, asynchronous=True)

    def close(self) -> None:
        """Send what is not sent, and close the connections; some seconds later without waiting."""
        if not returns_in_time(self._consumer.close, END_S):
            _log.warning(
                "Tools may see an old lag of this program: no broker took the last offsets of "
                "group %s within %g s",
                self._settings["group.id"],
                END_S,
            )

    def _note(self, error: ClientError | None, _: list[TopicPartition]) -> None:
        if error is not None and not self._told:
            group = self._settings["group.id"]
            failed = kafka_error(error, "commit group offsets", self._settings, group=group)
            _log.warning("Tools see an old lag of this program: %s", failed)
        self._told = error is not None
