"""What an MQTT receiver is told: checked where it is given, and read where it is used."""

from __future__ import annotations

import importlib.util
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import ReceiverError
from penstock.model import shown
from penstock.receivers import arguments
from penstock.receivers.mqtt.topic_filters import uncovered

_OPERATION = "set up MQTT receiver"
_check = partial(arguments.check, operation=_OPERATION)

MESSAGES_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("retained", pa.bool_(), nullable=False),
        pa.field("received_ms", pa.int64(), nullable=False),
    ]
)
"""A message: what was published, the QoS of its delivery, whether the broker had kept it for new
subscribers, and when it came here (milliseconds since the epoch)."""

_MAX_FILTER_BYTES = 65_535
_VERSIONS = ("3.1.1", "5")


@dataclass(frozen=True, slots=True)
class MqttOptions:
    """The arguments of MqttReceiver. Holds paths of secrets, never secrets.

    Raises:
        ConfigError: they cannot work.
    """

    host: str
    port: int
    topics: tuple[str, ...]
    qos: int
    client_id: str | None
    version: str
    share_group: str | None
    username: str | None
    password_file: str | None
    tls: bool
    tls_ca: str | None
    tls_certificate: str | None
    tls_key: str | None

    def __post_init__(self) -> None:
        host, port, qos, version = self.host, self.port, self.qos, self.version
        _check(
            isinstance(host, str) and host.strip(), f"host {host!r} is not a name", "pass a name"
        )
        _check(
            isinstance(port, int) and 1 <= port <= 65535,
            f"port {port!r} is not a TCP port",
            "brokers listen at 1883, with TLS at 8883",
        )
        _check(qos in (0, 1, 2), f"qos is {qos!r}", "pass 0, 1 or 2; only 1 and 2 lose no messages")
        _check(version in _VERSIONS, f"version is {version!r}", f"pass one of {_VERSIONS}")
        _check(
            self.client_id is None or _is_text(self.client_id),
            f"client_id {self.client_id!r} is not a name",
            "pass a name for this program's session, or omit it",
        )
        _check(
            self.password_file is None or self.username is not None,
            "a password is given without a username",
            "also pass username",
        )
        _check(
            self.tls_key is None or self.tls_certificate is not None,
            "a TLS key is given without a certificate",
            "also pass tls_certificate",
        )
        self._check_topics()

    def _check_topics(self) -> None:
        for topic in self.topics:
            _check_filter(topic)
        if self.share_group is not None:
            _check(
                _is_text(self.share_group) and not set(self.share_group) & set("/+#"),
                f"share group {self.share_group!r} is not a name",
                "pass a name without /, + and #",
            )
            _check(
                not any(topic.startswith("$share/") for topic in self.topics),
                "a topic names its own share group",
                "pass share_group or topics with $share, not both",
            )

    @property
    def filters(self) -> tuple[str, ...]:
        """The topic filters to subscribe to: those that no other one covers."""
        return uncovered(self._given)

    @property
    def covered(self) -> tuple[str, ...]:
        """The others: a session may have them from an earlier version."""
        filters = self.filters
        return tuple(each for each in dict.fromkeys(self._given) if each not in filters)

    @property
    def _given(self) -> tuple[str, ...]:
        if self.share_group is None:
            return self.topics
        return tuple(f"$share/{self.share_group}/{topic}" for topic in self.topics)

    def password(self) -> str | None:
        """Read the password, without the line end of its file.

        Raises:
            ReceiverError: the file cannot be read.
        """
        if self.password_file is None:
            return None
        try:
            return Path(self.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as e:
            raise _unusable("the password file cannot be read", self.password_file) from e

    def tls_context(self) -> ssl.SSLContext | None:
        """Read the certificates; None for a connection without TLS.

        Raises:
            ReceiverError: a file cannot be read or is not a certificate or key.
        """
        if not (self.tls or self.tls_ca or self.tls_certificate):
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca)
        except OSError as e:
            raise _unusable("the certificates to trust cannot be used", self.tls_ca) from e
        if self.tls_certificate is not None:
            try:
                context.load_cert_chain(self.tls_certificate, self.tls_key)
            except OSError as e:
                raise _unusable(
                    "the certificate or its key cannot be used", self.tls_certificate
                ) from e
        return context


def topics_of(topics: Any) -> tuple[str, ...]:
    """Return the topics of an argument; a str is one topic.

    Raises:
        ConfigError: there is none, or one is not a str.
    """
    is_one = isinstance(topics, str) or not isinstance(topics, Iterable)
    found = (topics,) if is_one else tuple(topics)
    hint = "pass for example ['sensors/#']"
    _check(found, "no topic is given", hint)
    for topic in found:
        _check(isinstance(topic, str), f"{shown(topic)} is not a topic", hint)
    return found


def require_paho() -> None:
    """Check that the MQTT client library is installed.

    Raises:
        ConfigError: it is not.
    """
    _check(
        importlib.util.find_spec("paho") is not None,
        "the MQTT client library paho-mqtt is not installed",
        "pip install 'penstock-spark[mqtt]', also where the executors run",
    )


def _check_filter(topic: str) -> None:
    hint = "write + for one whole level and # for all further ones, at the end: sensors/+/state"
    _check(
        topic and "\0" not in topic,
        f"{topic!r} is not a topic filter",
        hint,
    )
    _check(len(topic.encode()) <= _MAX_FILTER_BYTES, "a topic filter is too long", hint)
    *parents, last = topic.split("/")
    for level in parents:
        _check("#" not in level, f"topic filter {topic!r} has # before its end", hint)
    for level in (*parents, last):
        is_whole = level in ("+", "#") or not set(level) & set("+#")
        _check(is_whole, f"topic filter {topic!r} has a wildcard within a level", hint)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _unusable(what: str, path: str | None) -> ReceiverError:
    return ReceiverError(
        what,
        operation="connect to MQTT broker",
        path=path,
        hint="put the file, as PEM if it is of TLS, where the receiver runs, readable by its user",
    )
