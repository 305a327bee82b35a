"""What clients raise, as penstock's errors: what failed, at which brokers, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from penstock.errors import ConfigError, KafkaError
from penstock.kafka.client_conf import OAUTH, is_secret, without_secrets

GONE = (
    ClientError.OFFSET_OUT_OF_RANGE,
    ClientError._AUTO_OFFSET_RESET,
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
)
"""What a client tells of offsets and topics that are no longer there, or look so for a moment."""
FINAL = (
    ClientError._AUTHENTICATION,
    ClientError._SSL,
    ClientError.SASL_AUTHENTICATION_FAILED,
    ClientError.TOPIC_AUTHORIZATION_FAILED,
    ClientError.GROUP_AUTHORIZATION_FAILED,
)
"""What a client goes on trying, and in vain."""

_HINTS = {
    ClientError.TOPIC_EXCEPTION: "a topic's name has only letters, digits, '.', '_' and '-'",
    ClientError.UNKNOWN_TOPIC_OR_PART: "create the topic, or correct its name",
    ClientError.TOPIC_AUTHORIZATION_FAILED: "grant this user READ on the topic, to write WRITE",
    ClientError.GROUP_AUTHORIZATION_FAILED: "grant this user READ on the group, or choose group.id",
    ClientError.MSG_SIZE_TOO_LARGE: "records of that size have to be allowed: message.max.bytes of "
    "the client (1,000,000 if not set) and of the brokers, max.message.bytes of the topic",
    ClientError._AUTHENTICATION: "check sasl.mechanism, sasl.username and sasl.password, or what "
    "oauth_cb returns",
    ClientError.SASL_AUTHENTICATION_FAILED: "check sasl.mechanism, sasl.username and "
    "sasl.password, or what oauth_cb returns",
    ClientError._SSL: "check security.protocol and the ssl settings",
}
_UNREACHABLE = (
    "check bootstrap.servers, that the brokers run and can be reached from this host, and that "
    "security.protocol is the one of this port"
)
_TIMED_OUT = (ClientError._TIMED_OUT, ClientError._TRANSPORT, ClientError._TIMED_OUT_QUEUE)


def error_of(error: KafkaException) -> ClientError:
    """Return what a client's exception holds."""
    held: ClientError = error.args[0]
    return held


def failure_of(answer: Future[Any]) -> ClientError | None:
    """Wait for an answer; return the error that it is, None of one that has a result.

    What ``result()`` raises holds the frame that has the answer, and so its client, until the
    garbage collector comes.
    """
    error = answer.exception()
    if error is None or isinstance(error, KafkaException):
        return None if error is None else error_of(error)
    raise error


def kafka_error(
    error: ClientError,
    operation: str,
    settings: Mapping[str, Any],
    connection: ClientError | None = None,
    **ids: Any,
) -> KafkaError:
    """Return penstock's error for a client's; it has no secret of the settings.

    Of a request that timed out, what happened to a ``connection`` meanwhile is the reason.
    """
    text = error.str()
    if connection is not None and error.code() in _TIMED_OUT:
        text += f"; {connection.str()}"
    brokers = settings.get("bootstrap.servers") or settings.get("metadata.broker.list")
    return KafkaError(
        f"Kafka: {without_secrets(text, settings)} ({error.name()})",
        operation=operation,
        ids={"brokers": brokers, **ids},
        hint=_HINTS.get(error.code(), _UNREACHABLE),
    )


@contextmanager
def client_made(settings: Mapping[str, Any], conf: Mapping[str, Any]) -> Iterator[None]:
    """Have what a client of confluent-kafka raises when it is made, without a token, told.

    Args:
        settings: of ``ClientConf.settings``.
        conf: what the client is made with.

    Raises:
        KafkaError: it got no token in time.
    """
    try:
        yield
    except (KafkaException, SystemError) as raised:
        # confluent-kafka may call ``error_cb`` while it raises, which makes it a SystemError.
        error = raised if isinstance(raised, KafkaException) else raised.__cause__
        if not isinstance(error, KafkaException):
            raise
        failed = error_of(error)
        why = getattr(conf.get(OAUTH), "error", "")
        told = ClientError(failed.code(), f"{failed.str()}; {why}") if why else failed
        raise kafka_error(told, "connect to Kafka brokers", settings) from None


@contextmanager
def settings_checked(operation: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Have a client's refusal of its settings raised without their secrets.

    Raises:
        ConfigError: one is unknown or has a wrong value.
    """
    try:
        yield
    except KafkaException as refused:
        text = error_of(refused).str()
    else:
        return
    name = next((name for name in settings if f'"{name}"' in text), None)
    is_unknown = text.startswith("No such")
    if name and not is_unknown and not is_secret(name) and f'"{settings[name]}"' not in text:
        text += f" (it is {settings[name]!r})"
    raise ConfigError(
        f"the Kafka client refuses its settings: {without_secrets(text, settings)}",
        operation=operation,
        hint="use librdkafka's settings (its CONFIGURATION.md), which differ from Java's"
        if is_unknown or name is None
        else f"see librdkafka's CONFIGURATION.md for the values of {name}",
    )
