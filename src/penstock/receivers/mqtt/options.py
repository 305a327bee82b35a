"""What an MQTT receiver is told: checked where it is given, and read where it is used."""

from __future__ import annotations

import importlib.util
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import ConfigError

__all__ = ["MESSAGES_SCHEMA", "MqttOptions", "check_options", "require_paho"]

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
    """The arguments of MqttReceiver, checked. Holds paths of secrets, never secrets."""

    host: str
    port: int
    filters: tuple[str, ...]
    """Topic filters as they are subscribed to: with ``$share/<group>/`` where shared."""
    qos: int
    client_id: str | None
    version: str
    username: str | None
    password_file: str | None
    tls: bool
    tls_ca: str | None
    tls_certificate: str | None
    tls_key: str | None

    def password(self) -> str | None:
        """Read the password, without the line end of its file.

        Raises:
            OSError: the file cannot be read.
        """
        if self.password_file is None:
            return None
        return Path(self.password_file).read_text(encoding="utf-8").rstrip("\r\n")

    def tls_context(self) -> ssl.SSLContext | None:
        """Read the certificates; None for a connection without TLS.

        Raises:
            OSError: a file cannot be read or is no certificate or key (ssl.SSLError).
        """
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.tls_ca)
        if self.tls_certificate is not None:
            context.load_cert_chain(self.tls_certificate, self.tls_key)
        return context


def check_options(
    host: str,
    port: int,
    topics: str | Sequence[str],
    *,
    qos: int,
    client_id: str | None,
    version: str,
    share_group: str | None,
    username: str | None,
    password_file: str | None,
    tls: bool,
    tls_ca: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
) -> MqttOptions:
    """Return the arguments of MqttReceiver as options.

    Raises:
        ConfigError: they cannot work.
    """
    _check(isinstance(host, str) and host.strip(), f"host {host!r} is no name", "pass a host name")
    _check(
        isinstance(port, int) and 1 <= port <= 65535,
        f"port {port!r} is not a TCP port",
        "brokers listen at 1883, with TLS at 8883",
    )
    _check(qos in (0, 1, 2), f"qos is {qos!r}", "pass 0, 1 or 2; only 1 and 2 lose nothing")
    _check(version in _VERSIONS, f"version is {version!r}", f"pass one of {', '.join(_VERSIONS)}")
    _check(
        client_id is None or (isinstance(client_id, str) and client_id and "\0" not in client_id),
        f"client_id {client_id!r} is no name",
        "pass a name of your own for this program's session, or leave it out",
    )
    _check(
        password_file is None or username is not None,
        "there is a password and no username",
        "pass username, too",
    )
    _check(
        tls_key is None or tls_certificate is not None,
        "there is a TLS key and no certificate",
        "pass tls_certificate, too",
    )
    return MqttOptions(
        host=host,
        port=port,
        filters=_filters(topics, share_group),
        qos=qos,
        client_id=client_id,
        version=version,
        username=username,
        password_file=password_file,
        tls=tls or tls_ca is not None or tls_certificate is not None,
        tls_ca=tls_ca,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
    )


def require_paho() -> None:
    """Check that the MQTT client library is there.

    Raises:
        ConfigError: it is not.
    """
    _check(
        importlib.util.find_spec("paho") is not None,
        "the MQTT client library paho-mqtt is not installed",
        "pip install 'penstock[mqtt]', also where the executors run",
    )


def _filters(topics: str | Sequence[str], share_group: str | None) -> tuple[str, ...]:
    several = (topics,) if isinstance(topics, str) else tuple(topics)
    _check(several, "there is no topic to subscribe to", "pass topics=['sensors/#'], for example")
    for topic in several:
        _check_filter(topic)
    if share_group is None:
        return several
    _check(
        isinstance(share_group, str) and share_group and not set(share_group) & set("/+#\0"),
        f"share group {share_group!r} is no name",
        "pass a name without /, + and #",
    )
    _check(
        not any(topic.startswith("$share/") for topic in several),
        "a topic names a share group of its own",
        "pass share_group or topics with $share, not both",
    )
    return tuple(f"$share/{share_group}/{topic}" for topic in several)


def _check_filter(topic: str) -> None:
    hint = "write + for one whole level and # for all further ones, at the end: sensors/+/state"
    _check(
        isinstance(topic, str) and topic and "\0" not in topic,
        f"{topic!r} is no topic filter",
        hint,
    )
    _check(len(topic.encode()) <= _MAX_FILTER_BYTES, "a topic filter is too long", hint)
    *parents, last = topic.split("/")
    for level in parents:
        _check("#" not in level, f"topic filter {topic!r} has # before its end", hint)
    for level in (*parents, last):
        is_whole = level in ("+", "#") or not set(level) & set("+#")
        _check(is_whole, f"topic filter {topic!r} has a wildcard within a level", hint)


def _check(holds: object, problem: str, hint: str) -> None:
    if not holds:
        raise ConfigError(problem, operation="set up MQTT receiver", hint=hint)
