"""The plain values of ``pyspark.streaming.kafka``, which PySpark 3.0 no longer has.

Source: PySpark 2.4, ``pyspark.streaming.kafka``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.kafka.records import KafkaRecord

__all__ = [
    "Broker",
    "Decoder",
    "KafkaMessageAndMetadata",
    "OffsetRange",
    "ToMessage",
    "ToPair",
    "TopicAndPartition",
    "utf8_decoder",
]

Decoder = Callable[[Any], Any]
"""Makes a value of the bytes of a key or message; is given None where there are none."""


def utf8_decoder(s: bytes | None) -> str | None:
    """Decode the text of a key or message; None stays None."""
    return None if s is None else s.decode("utf-8")


class OffsetRange:
    """The offsets ``[fromOffset, untilOffset)`` of a partition of a topic."""

    def __init__(self, topic: str, partition: int, fromOffset: int, untilOffset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.fromOffset = fromOffset
        self.untilOffset = untilOffset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRange) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.fromOffset, self.untilOffset))

    def __str__(self) -> str:
        return (
            f"OffsetRange(topic: {self.topic}, partition: {self.partition}, "
            f"range: [{self.fromOffset} -> {self.untilOffset}]"
        )

    __repr__ = __str__


class TopicAndPartition:
    """A partition of a topic."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicAndPartition) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._topic, self._partition))

    def __str__(self) -> str:
        return f"TopicAndPartition(topic: {self._topic}, partition: {self._partition})"

    __repr__ = __str__


class Broker:
    """The address of a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    def __str__(self) -> str:
        return f"Broker(host: {self._host}, port: {self._port})"

    __repr__ = __str__


class KafkaMessageAndMetadata:
    """A record as a ``messageHandler`` gets it. Key and message are decoded when asked for."""

    def __init__(
        self, topic: str, partition: int, offset: int, key: bytes | None, message: bytes | None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._rawKey = key
        self._rawMessage = message
        self._keyDecoder: Decoder = utf8_decoder
        self._valueDecoder: Decoder = utf8_decoder

    def _set_key_decoder(self, decoder: Decoder) -> None:
        self._keyDecoder = decoder

    def _set_value_decoder(self, decoder: Decoder) -> None:
        self._valueDecoder = decoder

    @property
    def key(self) -> Any:
        """The decoded key."""
        return self._keyDecoder(self._rawKey)

    @property
    def message(self) -> Any:
        """The decoded value."""
        return self._valueDecoder(self._rawMessage)

    def __str__(self) -> str:
        return (
            f"KafkaMessageAndMetadata(topic: {self.topic}, partition: {self.partition}, "
            f"offset: {self.offset}, key and message...)"
        )

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class ToPair:
    """Makes pairs of key and value of records."""

    key: Decoder
    value: Decoder

    def __call__(self, record: KafkaRecord) -> tuple[Any, Any]:
        """Return the pair of a record."""
        return self.key(record.key), self.value(record.value)


@dataclass(frozen=True, slots=True)
class ToMessage:
    """Makes of records what a ``messageHandler`` returns for them."""

    key: Decoder
    value: Decoder
    handler: Callable[[KafkaMessageAndMetadata], Any]

    def __call__(self, record: KafkaRecord) -> Any:
        """Return what the handler returns for a record."""
        found = KafkaMessageAndMetadata(
            record.topic, record.partition, record.offset, record.key, record.value
        )
        found._set_key_decoder(self.key)
        found._set_value_decoder(self.value)
        return self.handler(found)
