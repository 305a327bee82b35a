"""A producer, and the first record that it could not deliver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from penstock.errors import ConfigError, KafkaError
from penstock.kafka.client_conf import ClientConf, resolve, settings_of
from penstock.kafka.failures import error_of, kafka_error, settings_error
from penstock.kafka.sink.records import Outgoing

__all__ = [
    "RETRIES",
    "Sender",
    "check_sink_settings",
    "check_sink_topic",
    "sender_conf",
    "sink_conf",
]

_CONSUMERS = (
    "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof",
    "group.id", "group.instance.id", "isolation.level", "partition.assignment.strategy",
    "session.timeout.ms",
)  # fmt: skip
"""Settings of the same mapping that readers use; producers have no such thing."""
_POLL_EVERY = 1000
RETRIES = {"retry.backoff.ms": 10, "reconnect.backoff.max.ms": 1000}
"""Usual settings: a batch waits for each of these, and brokers come back."""
_CREATED_S = 3.0
"""The time in which brokers answer, or have created a topic."""
_NO_TOPIC = (ClientError.UNKNOWN_TOPIC_OR_PART, ClientError.TOPIC_EXCEPTION)
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
    """Return a producer's configuration: idempotent, with reports of failures only."""
    given = resolve(settings)
    usual = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0, **RETRIES}
    return {**usual, **given, **own, "delivery.report.only.error": True}


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
    own = {"transactional.id": "penstock"} if exactly_once else {}
    try:
        Producer(sender_conf(settings, **own))
    except KafkaException as error:
        raise settings_error(error, "configure Kafka sink", settings) from None


def check_sink_topic(settings: Mapping[str, Any], topic: str) -> None:
    """Check that a topic exists; brokers that create topics on demand are asked to.

    Brokers that do not answer are left to the first batch, which waits for them.

    Raises:
        KafkaError: it does not exist, or cannot have that name.
    """
    client = Producer(sender_conf(settings))
    deadline_s = time.monotonic() + _CREATED_S
    while True:
        try:
            error = client.list_topics(topic, _CREATED_S).topics[topic].error
        except KafkaException:
            return
        if error is None or error.code() not in _NO_TOPIC:
            return
        if time.monotonic() > deadline_s:
            raise kafka_error(error, "write to Kafka", settings, topic=topic)
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
        self._sent = 0
        self._failed: tuple[ClientError, Message] | None = None
        self._error: ClientError | None = None
        conf = sender_conf(settings, **own)
        self.client = Producer({**conf, "on_delivery": self._note, "error_cb": self._note_error})

    def send(self, record: Outgoing) -> None:
        """Queue a record; waits while the queue is full.

        Raises:
            KafkaError: it, or one before it, cannot be delivered.
        """
        topic, key, value, headers = record
        while True:
            try:
                if headers:
                    self.client.produce(topic, value, key, headers=headers)
                else:
                    self.client.produce(topic, value, key)
                break
            except BufferError:
                self._wait(0.1)
            except KafkaException as error:
                self._raise_failed()
                raise self.error(error_of(error), topic=topic, record=_shown(key, value)) from None
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._wait(0)

    def flush(self) -> None:
        """Wait until all records are delivered.

        Raises:
            KafkaError: one cannot be: within ``message.timeout.ms`` the brokers did not take it.
        """
        while self._wait(1.0, self.client.flush):
            pass

    def _wait(self, timeout_s: float, call: Callable[[float], int] | None = None) -> int:
        """Serve the client's reports; return what is not delivered yet.

        Raises:
            KafkaError: a record failed, or the client did, for good.
        """
        left = 0
        try:
            left = (call or self.client.poll)(timeout_s)
            is_fatal = False
        except (KafkaException, SystemError):  # which one is raised is left to chance
            is_fatal = True
        failed = None if self._failed is None else self._failed[0].code()
        if is_fatal or failed in _CONSEQUENCES:
            raise self.error(self._fatal_error())
        self._raise_failed()
        return left

    def _fatal_error(self) -> ClientError:
        """Return why the client failed for good; it says so when asked for anything more."""
        try:
            self.client.abort_transaction(1.0)
        except KafkaException as raised:
            return error_of(raised)
        return self._error or ClientError(ClientError._FATAL)

    def _raise_failed(self) -> None:
        if self._failed is None:
            return
        error, message = self._failed
        key, value = message.key(), message.value()
        raise self.error(
            error,
            topic=message.topic(),
            partition=message.partition(),
            record=_shown(key, value),
        )

    def error(self, error: ClientError, **ids: Any) -> KafkaError:
        """Return penstock's error for one of the client."""
        if (explained := self._explain(error)) is not None:
            return explained
        if error.code() in (ClientError._MSG_TIMED_OUT, ClientError._TIMED_OUT):
            error = self._error or error  # says why
        return kafka_error(error, "write to Kafka", self._settings, **ids)

    def close(self) -> None:
        """Drop what is not sent, and end."""
        with suppress(KafkaException, SystemError):  # what it raises when it is fenced
            self.client.purge()
            self.client.close()

    def _note(self, error: ClientError | None, message: Message) -> None:
        # When one fails, those behind it are purged: the first failure is the reason.
        if error is None:
            return
        if self._failed is None or self._failed[0].code() in _CONSEQUENCES:
            self._failed = (error, message)

    def _note_error(self, error: ClientError) -> None:
        self._error = error


def _shown(key: Any, value: Any) -> str:
    return f"key {_short(key)}, value {_short(value)}"


def _short(part: Any) -> str:
    text = repr(part)
    return text if len(text) <= 100 else f"{text[:100]}..."
