"""A producer, and the first record that it could not deliver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from penstock.errors import ConfigError, KafkaError
from penstock.kafka.client_conf import OAUTH, ClientConf, resolve, settings_of
from penstock.kafka.failures import client_made, error_of, kafka_error, settings_checked
from penstock.kafka.sink.failures import OPERATION
from penstock.kafka.sink.records import Headers, Outgoing

_CONSUMERS = (
    "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof",
    "group.id", "group.instance.id", "isolation.level", "partition.assignment.strategy",
    "session.timeout.ms",
)  # fmt: skip
"""Settings of the same mapping that readers use; producers have no such thing."""
_QUEUE_POLL_S = 0.01
_FLUSH_S = 0.1
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
    conf = sender_conf(settings, **({"transactional.id": "penstock"} if exactly_once else {}))
    conf.pop(OAUTH, None)  # a client would wait for a token
    with settings_checked("configure Kafka sink", settings):
        Producer(conf)


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


def refused_topic(client: Producer, topic: str) -> ClientError | None:
    """Return why a topic can never be written, None if it can; to ask may create it.

    Raises:
        KafkaException: the brokers do not answer.
    """
    deadline_s = time.monotonic() + _CREATED_S
    while True:
        error: ClientError | None = client.list_topics(topic, _CREATED_S).topics[topic].error
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
        self._fatal: ClientError | None = None
        callbacks = {"error_cb": self._note_error, "on_delivery": self._note_delivery}
        conf = {**sender_conf(settings, **own), **callbacks, "delivery.report.only.error": True}
        with client_made(settings, conf):
            self.client = Producer(conf)

    def send(self, records: Outgoing) -> None:
        """Queue records; waits while the queue is full.

        Raises:
            KafkaError: one of them, or of those before them, cannot be delivered.
        """
        for key, value, headers in records.rows():
            self._produce(records.topic, key, value, headers or [])
        self._poll(0)

    def _produce(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        while True:
            try:
                self.client.produce(topic, value, key, headers=headers)  # type: ignore[arg-type]
                return
            except BufferError:  # the queue is full
                self._poll(_QUEUE_POLL_S)
            except KafkaException as raised:
                self._poll(0)
                raise self.error(error_of(raised), topic=topic, record=shown(key, value)) from None

    def flush(self) -> None:
        """Wait until all records are delivered.

        Raises:
            KafkaError: one cannot be: within ``message.timeout.ms`` the brokers did not take it.
        """
        while self._serve(self.client.flush, _FLUSH_S):
            self._check()
        self._check()

    def lost_connections(self) -> bool:
        """Return whether the client has lost a connection to a broker, as far as it knows."""
        self._serve(self.client.poll, 0)
        return bool(self._error or self._fatal)

    def _poll(self, wait_s: float) -> None:
        self._serve(self.client.poll, wait_s)
        self._check()

    def _serve(self, call: Callable[[float], int], wait_s: float) -> int:
        try:
            return call(wait_s)
        except KafkaException as raised:  # the client failed for good
            self._fatal = error_of(raised)
            return 0

    def _check(self) -> None:
        """Raise KafkaError if a record failed, or the client did, for good."""
        if self._fatal or (self._failed and self._failed[0].code() in _CONSEQUENCES):
            raise self.error(self._fatal or self._failure_of_transaction())
        if self._failed is not None:
            error, ids = self._failed
            raise self.error(error, **ids)

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
        """Drop what is not sent, and end; nothing else may be called after it."""
        self.client.purge()
        del self.client  # to close it would flush

    def _note_delivery(self, error: ClientError | None, message: Message) -> None:
        # When one fails, those behind it are purged: the first failure is the reason.
        if error and (self._failed is None or self._failed[0].code() in _CONSEQUENCES):
            record = shown(message.key(), message.value())
            ids = {"topic": message.topic(), "partition": message.partition(), "record": record}
            self._failed = (error, ids)

    def _note_error(self, error: ClientError) -> None:
        self._error = error
        if error.fatal():
            self._fatal = error


def shown(key: Any, value: Any) -> str:
    """Return a record as errors have it."""
    return f"key {_short(key)}, value {_short(value)}"


def _short(part: Any) -> str:
    text = repr(part)
    return text if len(text) <= 100 else f"{text[:100]}..."
