"""Reads ranges of topics, in executors.

A range is read to its end by position, not by its last record: compaction removes records, and
transactions use offsets up, so the last offsets of a range may have none. librdkafka reports where
it is in a partition when it reaches the partition's end, and with each later record.

A consumer is kept for the next task of the process: it has its connections and its topics' leaders.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka import KafkaError as ClientError

from penstock.errors import ConfigError, KafkaDataLossError
from penstock.kafka.client_conf import is_secret, resolve
from penstock.kafka.failures import FINAL, OUT_OF_RANGE, error_of, kafka_error
from penstock.kafka.losses import LOSS_HINT
from penstock.kafka.offsets import KafkaRange
from penstock.kafka.pass_over import PassOver
from penstock.kafka.records import COLUMNS, KafkaRecord

__all__ = ["Decode", "check_settings", "read_batches", "read_records"]

Decode = Callable[[bytes], Any] | None
"""Makes a value of the bytes of a key or value; not asked for None, which stays None."""

_MOST = 10_000
_POLL_S = 0.5
PATIENCE_S = 120.0
"""Without anything from the brokers for this long the read fails, as in Spark's source."""
_idle: dict[str, list[_Client]] = {}
_lock = threading.Lock()


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check that a client takes its settings; connects to nothing.

    Raises:
        ConfigError: one is unknown or has a wrong value, or a file of a secret cannot be read.
    """
    try:
        _Client(settings).consumer.close()
    except KafkaException as error:
        what = error_of(error).str()
        for name, value in resolve(settings).items():
            if is_secret(name):
                what = what.replace(str(value), "***")
        raise ConfigError(
            f"the Kafka client refuses its settings: {what}",
            operation="configure Kafka client",
            hint="use librdkafka's settings (its CONFIGURATION.md), which differ from Java's",
        ) from None


def read_records(
    settings: Mapping[str, Any],
    ranges: Iterable[KafkaRange],
    key: Decode,
    value: Decode,
    pass_over: PassOver | None = None,
) -> Iterator[KafkaRecord]:
    """Return the records of ranges, in order.

    Args:
        settings: of ``ClientConf.settings``.
        ranges: what to read.
        key: decodes keys.
        value: decodes values.
        pass_over: continues after records that are gone.

    Raises:
        KafkaError: the brokers refuse, or do not answer in time.
        KafkaDataLossError: records are no longer there, and there is no ``pass_over``.
    """
    for wanted in ranges:
        for messages in _read(settings, wanted, pass_over):
            for message in messages:
                yield _record(message, key, value)


def read_batches(
    settings: Mapping[str, Any],
    ranges: Iterable[KafkaRange],
    columns: Iterable[str],
    pass_over: PassOver | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the records of ranges as Arrow batches with these columns, in order.

    Raises as ``read_records``.
    """
    columns = tuple(columns)
    for wanted in ranges:
        for messages in _read(settings, wanted, pass_over):
            yield pa.record_batch(
                [pa.array(map(_CELLS[name], messages), COLUMNS[name]) for name in columns],
                names=columns,
            )


def _record(message: Message, key: Decode, value: Decode) -> KafkaRecord:
    of_key, of_value = message.key(), message.value()
    return KafkaRecord(
        of_key if key is None or of_key is None else key(of_key),
        of_value if value is None or of_value is None else value(of_value),
        cast("str", message.topic()),
        cast("int", message.partition()),
        _offset(message),
        _timestamp_ms(message),
        tuple(_headers(message)),
    )


def _offset(message: Message) -> int:
    return cast("int", message.offset())


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _timestamp_ms(message: Message) -> int | None:
    kind, time_ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else int(time_ms)


def _timestamp_us(message: Message) -> int | None:
    time_ms = _timestamp_ms(message)
    return None if time_ms is None else 1000 * time_ms


_CELLS: dict[str, Callable[[Message], Any]] = {
    "key": Message.key,
    "value": Message.value,
    "topic": Message.topic,
    "partition": Message.partition,
    "offset": Message.offset,
    "timestamp": _timestamp_us,
    "headers": lambda m: [{"key": k, "value": v} for k, v in _headers(m)],
}


class _Client:
    """A consumer, and the last error that it told of its connections."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.error: ClientError | None = None
        conf = {"group.id": "penstock", "check.crcs": True, "isolation.level": "read_committed"}
        # A wait for more is the price of each range whose last offsets have no records.
        conf |= {"fetch.wait.max.ms": 10, **resolve(settings)}
        conf |= {
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": self._note,
            "log_level": 0,
        }
        self.consumer = Consumer(conf)

    def _note(self, error: ClientError) -> None:
        self.error = error


@contextmanager
def _client(settings: Mapping[str, Any]) -> Iterator[_Client]:
    """Lend a client of this process; one that failed is closed."""
    key = repr(sorted(settings.items()))
    with _lock:
        idle = _idle.setdefault(key, [])
        client = idle.pop() if idle else _Client(settings)
    try:
        yield client
    except BaseException:
        client.consumer.close()
        raise
    with suppress(KafkaException):
        client.consumer.unassign()  # or it goes on fetching
    with _lock:
        idle.append(client)


def _read(
    settings: Mapping[str, Any], wanted: KafkaRange, pass_over: PassOver | None
) -> Iterator[list[Message]]:
    """Return the messages of a range, a list at a time."""
    with _client(settings) as client:
        consumer, position = client.consumer, wanted.start_offset
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, position)])
        client.error, heard_s = None, time.monotonic()
        while position < wanted.end_offset:
            messages = _poll(consumer)
            if not messages:
                _check_patience(settings, wanted, position, client, heard_s)
                continue
            found: list[Message] = []
            is_gone = False
            for message in messages:
                if (error := message.error()) is None:
                    position = _offset(message) + 1
                    if position <= wanted.end_offset:
                        found.append(message)
                elif error.code() == ClientError._PARTITION_EOF:
                    position = max(position, _offset(message))
                elif error.code() in OUT_OF_RANGE and pass_over is not None:
                    is_gone = True
                else:
                    _raise_unless_passing(settings, wanted, position, error)
            if found:
                heard_s = time.monotonic()
                yield found
            if is_gone and pass_over is not None:
                position = pass_over(wanted, position)
                consumer.assign([TopicPartition(wanted.topic, wanted.partition, position)])
                _check_patience(settings, wanted, position, client, heard_s)


def _poll(consumer: Consumer) -> list[Message]:
    """Return what has come or comes within a moment; ``consume`` would wait for all it may take."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_MOST, 0)]


def _raise_unless_passing(
    settings: Mapping[str, Any], wanted: KafkaRange, position: int, error: ClientError
) -> None:
    if error.code() in OUT_OF_RANGE:
        raise KafkaDataLossError(
            f"offset {position} of {wanted.topic}/{wanted.partition} is not in the topic",
            operation="read topic",
            ids=_ids(wanted, position),
            hint=LOSS_HINT,
        )
    if error.code() in FINAL or error.fatal():
        raise kafka_error(error, "read topic", settings, **_ids(wanted, position))


def _check_patience(
    settings: Mapping[str, Any], wanted: KafkaRange, position: int, client: _Client, since_s: float
) -> None:
    if client.error is not None and client.error.code() in FINAL:
        raise kafka_error(client.error, "read topic", settings, **_ids(wanted, position))
    if time.monotonic() - since_s < PATIENCE_S:
        return
    error = client.error or ClientError(ClientError._TIMED_OUT, "the brokers sent nothing")
    raise kafka_error(error, "read topic", settings, **_ids(wanted, position))


def _ids(wanted: KafkaRange, position: int) -> dict[str, Any]:
    return {
        "topic": wanted.topic,
        "partition": wanted.partition,
        "position": position,
        "end": wanted.end_offset,
    }
