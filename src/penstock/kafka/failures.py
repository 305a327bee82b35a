"""What clients raise, as penstock's errors: what failed, at which brokers, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from penstock.errors import ConfigError, KafkaError
from penstock.kafka.client_conf import is_secret, without_secrets

__all__ = ["FINAL", "OUT_OF_RANGE", "error_of", "kafka_error", "settings_error"]

OUT_OF_RANGE = (ClientError.OFFSET_OUT_OF_RANGE, ClientError._AUTO_OFFSET_RESET)
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
    ClientError.TOPIC_AUTHORIZATION_FAILED: "grant this user READ and DESCRIBE on the topic",
    ClientError.GROUP_AUTHORIZATION_FAILED: "grant this user READ on the group, or choose group.id",
    ClientError._AUTHENTICATION: "check sasl.mechanism, sasl.username and sasl.password",
    ClientError.SASL_AUTHENTICATION_FAILED: "check sasl.mechanism, sasl.username and sasl.password",
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
        path=str(brokers),
        ids=ids,
        hint=_HINTS.get(error.code(), _UNREACHABLE),
    )


def settings_error(
    error: KafkaException, operation: str, settings: Mapping[str, Any]
) -> ConfigError:
    """Return the error of a client that does not take its settings, without their secrets."""
    text = error_of(error).str()
    name = next((name for name in settings if f'"{name}"' in text), None)
    is_unknown = text.startswith("No such")
    if name and not is_unknown and not is_secret(name) and f'"{settings[name]}"' not in text:
        text += f" (it is {settings[name]!r})"
    return ConfigError(
        f"the Kafka client refuses its settings: {without_secrets(text, settings)}",
        operation=operation,
        hint="use librdkafka's settings (its CONFIGURATION.md), which differ from Java's"
        if is_unknown or name is None
        else f"see librdkafka's CONFIGURATION.md for the values of {name}",
    )
