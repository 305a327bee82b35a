"""The subscribed topics as the driver sees them: partitions, and where these begin and end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from penstock.errors import KafkaDataLossError
from penstock.kafka.client_conf import resolve
from penstock.kafka.failures import error_of, kafka_error
from penstock.kafka.offsets import partition_name
from penstock.model import Offsets

__all__ = ["Subscription", "Topics", "advance"]

_TIMEOUT_S = 3.0
"""The brokers are asked again with the next batch: a longer wait makes batches late."""
_ADMIN = ("client.", "bootstrap.", "metadata.", "security.", "ssl.", "sasl.", "socket.", "broker.")
_ADMIN_TOO = ("enable.ssl.certificate.verification", "debug", "api.version.request")

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

Subscription = Sequence[str] | re.Pattern[str]
"""Topics by their names, or by a pattern that a whole name matches."""


class Topics:
    """Asks the brokers for partitions and offsets. Not thread-safe.

    Args:
        settings: of ``ClientConf.settings``, which a client takes (``check_settings``).
        subscription: which topics.
    """

    def __init__(self, settings: Mapping[str, Any], subscription: Subscription) -> None:
        self._settings = settings
        self._subscription = subscription
        committed = settings.get("isolation.level", "read_committed") == "read_committed"
        self._isolation = (
            IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        )
        admin = {
            k: v for k, v in resolve(settings).items() if k.startswith(_ADMIN) or k in _ADMIN_TOO
        }
        self._admin = AdminClient({**admin, "log_level": 0})

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of the topics that exist.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        named = None if isinstance(self._subscription, re.Pattern) else self._subscription
        try:
            if named is None:
                found = self._admin.list_topics(timeout=_TIMEOUT_S).topics
            else:
                found = {
                    topic: self._admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
                    for topic in named
                }
        except KafkaException as error:
            raise kafka_error(error_of(error), "list topics", self._settings) from None
        wanted = {
            topic: facts
            for topic, facts in found.items()
            if named is not None or self._subscription.fullmatch(topic)  # type: ignore[union-attr]
        }
        for topic, facts in wanted.items():
            if facts.error is not None:
                raise kafka_error(facts.error, "list topics", self._settings, topic=topic)
        return [
            TopicPartition(topic, partition)
            for topic, facts in sorted(wanted.items())
            for partition in sorted(facts.partitions)
        ]

    def begins_and_ends(self) -> tuple[Offsets, Offsets]:
        """Return where the records of each partition begin and end now.

        The end is that of the records that can be read: with ``read_committed`` (the default), of
        those before the first open transaction.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        partitions = self.partitions()
        asked = [self._ask(partitions, spec) for spec in (_EARLIEST, _LATEST)]
        begins, ends = map(self._answers, asked)
        return begins, ends

    def at_time(self, time_ms: int) -> Offsets:
        """Return each partition's first offset at or after a time, its end without one.

        Raises:
            KafkaError: the brokers do not answer, or refuse.
        """
        _, ends = self.begins_and_ends()
        found = self._answers(self._ask(self.partitions(), OffsetSpec.for_timestamp(time_ms)))
        return {name: found[name] if found[name] >= 0 else end for name, end in ends.items()}

    def _ask(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, Future[Any]]:
        if not partitions:
            return {}
        asked: dict[TopicPartition, Future[Any]] = self._admin.list_offsets(
            dict.fromkeys(partitions, spec),
            isolation_level=self._isolation,
            request_timeout=_TIMEOUT_S,
        )
        return asked

    def _answers(self, asked: Mapping[TopicPartition, Future[Any]]) -> Offsets:
        answers = {}
        for place, answer in asked.items():
            try:
                answers[partition_name(place.topic, place.partition)] = answer.result().offset
            except KafkaException as error:
                raise kafka_error(
                    error_of(error),
                    "list offsets",
                    self._settings,
                    topic=place.topic,
                    partition=place.partition,
                ) from None
        return answers


def advance(start: Offsets, begins: Offsets, ends: Offsets) -> dict[str, int]:
    """Return the end of a batch that takes all records after ``start``. Pure.

    A partition that ``start`` lacks is recorded with where it begins, and read from the next batch
    on: so that where it begins is durable before it is read. One that is not seen now stays.

    Raises:
        KafkaDataLossError: records after ``start`` are gone.
    """
    for name in start.keys() & ends.keys():
        if not begins[name] <= start[name] <= ends[name]:
            raise _data_loss(name, start[name], begins[name], ends[name])
    seen = {name: end if name in start else begins[name] for name, end in ends.items()}
    return {**start, **seen}


def _data_loss(name: str, start: int, begin: int, end: int) -> KafkaDataLossError:
    if start < begin:
        what = f"records [{start}, {begin}) of {name} were deleted before they were read"
        hint = "give the topic a longer retention, and start with a new checkpoint location"
    else:
        what = f"{name} ends at {end}, before {start}, up to which it was read"
        hint = "the topic was created anew, or lost records: start with a new checkpoint location"
    return KafkaDataLossError(what, operation="plan batch", ids={"partition": name}, hint=hint)
