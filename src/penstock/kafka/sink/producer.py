"""A producer, and the first record that it could not deliver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from penstock.errors import ConfigError, KafkaError
from penstock.kafka.client_conf import ClientConf, resolve, settings_of
from penstock.kafka.failures import error_of, kafka_error, settings_checked
from penstock.kafka.producer import ProducerHandle
from penstock.kafka.sink.failures import OPERATION
from penstock.kafka.sink.records import Outgoing

_CONSUMERS = (
    "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof",
    "group.id", "group.instance.id", "isolation.level", "partition.assignment.strategy",
    "session.timeout.ms",
)  # fmt: skip
"""Settings of the same mapping that readers use; producers have no such thing."""
_QUEUE_POLL_S = 0.01
_FLUSH_S = 0.001
"""What is delivered wakes no one, as only failures are reported."""
RETRIES = {"retry.backoff.ms": 10, "reconnect.backoff.max.ms": 1000}
"""Usual settings: a batch waits for each of these, and brokers come back."""
_CREATED_S = 3.0
"""The time in which brokers answer, or have created a topic."""
_REFUSED = (
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError.TOPIC_EXCEPTION,
    ClientError.TOPIC_AUTHORIZATION_FAILED,
)
_CONSEQUENCES = (
    ClientError._PURGE_QUEUE,
    ClientError._PURGE_INFLIGHT,
    ClientError._FATAL,
    ClientError._FENCED,
)
"""Failures of records because the producer failed, or another record."""


def sink_conf(conf: Mapping[str, Any]) -> ClientConf:
    """Return the conf of a sink: programs may use one for readers and sinks.

    Raises:
        ConfigError: as ``ClientConf``.
    """
    return ClientConf({k: v for k, v in settings_of(conf).items() if k not in _CONSUMERS})


def sender_conf(settings: Mapping[str, Any], **own: Any) -> dict[str, Any]:
    """Return a producer's configuration, which is idempotent."""
    given = resolve(settings)
    usual = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0, **RETRIES}
    return {**usual, **given, **own}


def check_sink_settings(settings: Mapping[str, Any], *, exactly_once: bool) -> None:
    """Check that a producer takes its settings; waits for no broker.

    Raises:
        ConfigError: one is unknown or has a wrong value, or is not for an exactly-once sink.
    """
    if "transactional.id" in settings:
        raise ConfigError(
            "transactional.id is set by penstock: one for each partition of an output",
            operation="configure Kafka sink",
            hint="leave it out; delivery='exactly_once' is what makes transactions",
        )
    own: dict[str, Any] = {"transactional.id": "penstock"} if exactly_once else {}
    with settings_checked("configure Kafka sink", settings):
        Sender(settings, **own).close()


def check_sink_topic(settings: Mapping[str, Any], topic: str) -> None:
    """Check that a topic can be written; brokers that create topics on demand are asked to.

    Brokers that do not answer are left to the first batch, which waits for them.

    Raises:
        KafkaError: it does not exist, cannot have that name, or is not for this user.
    """
    sender = Sender(settings)
    try:
        error = refused_topic(sender.client, topic)
    except KafkaException:
        return
    finally:
        sender.close()
    if error is not None:
        raise kafka_error(error, OPERATION, settings, topic=topic)


def refused_topic(client: ProducerHandle, topic: str) -> ClientError | None:
    """Return why a topic can never be written, None if it can; to ask may create it.

    Raises:
        KafkaException: the brokers do not answer.
    """
    deadline_s = time.monotonic() + _CREATED_S
    while True:
        error = client.topic_error(topic, _CREATED_S)
        if error is None or error.code() not in _REFUSED:
            return None
        if error.code() != ClientError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline_s:
            return error
        time.sleep(0.1)


class Sender:
    """Sends records. Not thread-safe.

    Args:
        settings: of ``ClientConf.settings``.
        explain: what a client's error means to the caller, None if no more than it says.
        own: what only this producer has.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        explain: Callable[[ClientError], KafkaError | None] = lambda error: None,
        **own: Any,
    ) -> None:
        self._settings = settings
        self._explain = explain
        self._failed: tuple[ClientError, dict[str, Any]] | None = None
        self._error: ClientError | None = None
        self.client = ProducerHandle(
            sender_conf(settings, **own), self._note_error, self._note_failed
        )

    def send(self, records: Outgoing) -> None:
        """Queue records; waits while the queue is full.

        Raises:
            KafkaError: one of them, or of those before them, cannot be delivered.
        """
        if records.headers is None:
            self._send_all(records)
        else:
            self._send_each(records)

    def _send_all(self, records: Outgoing) -> None:
        while True:
            queued, error = self.client.produce(records.topic, records.keys, records.values)
            if error is None:
                break
            records = records.after(queued)
            self._wait_for_queue(error, records)
        self._wait(0)

    def _send_each(self, records: Outgoing) -> None:
        for number, (key, value, headers) in enumerate(records.rows()):
            send = partial(self.client.produce_one, records.topic, key, value, headers or ())
            while (error := send()) is not None:
                self._wait_for_queue(error, records.after(number))
        self._wait(0)

    def _wait_for_queue(self, error: ClientError, records: Outgoing) -> None:
        """Raise unless the queue is full; else wait until some of it is sent."""
        self._wait(_QUEUE_POLL_S)
        if error.code() != ClientError._QUEUE_FULL:
            key, value, _ = next(records.rows())
            raise self.error(error, topic=records.topic, record=shown(key, value))

    def flush(self) -> None:
        """Wait until all records are delivered.

        Raises:
            KafkaError: one cannot be: within ``message.timeout.ms`` the brokers did not take it.
        """
        while self._wait(_FLUSH_S, self.client.flush):
            pass

    def lost_connections(self) -> bool:
        """Return whether the client has lost a connection to a broker, as far as it knows."""
        self.client.poll(0)
        return self._error is not None

    def _wait(self, wait_s: float, call: Callable[[float], int] | None = None) -> int:
        """Serve the client's reports; return how many records are under way.

        Raises:
            KafkaError: a record failed, or the client did, for good.
        """
        left = (call or self.client.poll)(wait_s)
        fatal = self.client.fatal_error()
        if fatal is not None or (self._failed and self._failed[0].code() in _CONSEQUENCES):
            raise self.error(fatal or self._failure_of_transaction())
        if self._failed is not None:
            error, ids = self._failed
            raise self.error(error, **ids)
        return left

    def _failure_of_transaction(self) -> ClientError:
        """Return why records were dropped; the client says so when asked for anything more."""
        try:
            self.client.abort_transaction(1.0)
        except KafkaException as raised:
            return error_of(raised)
        return self._error or ClientError(ClientError._FATAL)

    def error(self, error: ClientError, **ids: Any) -> KafkaError:
        """Return penstock's error for one of the client."""
        if (explained := self._explain(error)) is not None:
            return explained
        if error.code() in (ClientError._MSG_TIMED_OUT, ClientError._TIMED_OUT):
            error = self._error or error  # says why
        return kafka_error(error, OPERATION, self._settings, **ids)

    def close(self) -> None:
        """Drop what is not sent, and end."""
        self.client.close()

    def _note_failed(
        self, error: ClientError, topic: str, partition: int, key: bytes | None, value: bytes | None
    ) -> None:
        # When one fails, those behind it are purged: the first failure is the reason.
        if self._failed is None or self._failed[0].code() in _CONSEQUENCES:
            ids = {"topic": topic, "partition": partition, "record": shown(key, value)}
            self._failed = (error, ids)

    def _note_error(self, error: ClientError) -> None:
        self._error = error


def shown(key: Any, value: Any) -> str:
    """Return a record as errors have it."""
    return f"key {_short(key)}, value {_short(value)}"


def _short(part: Any) -> str:
    text = repr(part)
    return text if len(text) <= 100 else f"{text[:100]}..."
