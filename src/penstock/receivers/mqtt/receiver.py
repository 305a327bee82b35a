"""The MQTT receiver: stores what the network thread takes in, and lets it acknowledge that."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import ReceiverError
from penstock.receivers.mqtt.buffer import MessageBuffer, Taken
from penstock.receivers.mqtt.options import MESSAGES_SCHEMA, MqttOptions, require_paho, topics_of
from penstock.receivers.mqtt.packets import Messages
from penstock.receivers.mqtt.topic_filters import overlapping
from penstock.receivers.threaded import ThreadedReceiver

if TYPE_CHECKING:
    from penstock.receivers.mqtt.network import Network

_log = logging.getLogger(__name__)

_BUFFER_BYTES = 64 << 20
"""Of what has come; as much again may be with the store that blocks."""
_TAKE_S = 0.1
_ACKS_S = 5.0


class MqttReceiver(ThreadedReceiver):
    """Subscribes to topics of an MQTT broker and stores each message, as MESSAGES_SCHEMA says.

    QoS 1 and 2: a message is acknowledged (PUBACK, PUBREC) once it is durable in the journal, so a
    message that the broker holds for this session is never lost. It is stored again only where the
    acknowledgement did not reach the broker: after a kill, at most what was in flight; after a cut
    connection, with QoS 1 only, what was being acknowledged at that moment. QoS 0 is at most once.

    The session at the broker is persistent: it keeps messages while this receiver is away, up to
    the broker's limits. It goes by the client id, ``<client_id>-<receiver's name>``, so receivers
    of one stream have a session each; give them a ``share_group``, or each of them gets every
    message.

    Back pressure: the broker sends up to its in-flight window (with MQTT 5 at most 10,000 messages)
    before it waits for acknowledgements. What has come waits in memory, up to about 128 MiB; then
    nothing is read and TCP holds the broker back. Pings are sent meanwhile. Nothing is dropped
    here.

    A refused or lost connection is reported and tried again, after 0.1 s at first and at most 30 s.

    Args:
        host: name or address of the broker.
        port: its TCP port; with TLS usually 8883.
        topics: topic filters to subscribe to, with ``+`` and ``#``. One that another one covers is
            left out: a broker may deliver a message once for each filter that it matches.
        qos: the highest quality of service of deliveries. A publisher's own is the lower bound of
            what it promises, and a message comes with the lower of the two.
        client_id: names the session; by default ``penstock-<stream>``. No other program may use it.
        version: of the protocol, ``"3.1.1"`` or ``"5"``.
        share_group: share the messages with all clients that name this group, each message to one.
        username: to log in with.
        password_file: path of a file that holds the password, where the receiver runs. It is read
            for each connection.
        tls: whether to use TLS; implied by what follows.
        tls_ca: path of the certificates to trust (PEM) instead of the system's.
        tls_certificate: path of this client's certificate (PEM).
        tls_key: path of its key, when that is not in the same file.

    Raises:
        ConfigError: an argument cannot work, or paho-mqtt is missing.
    """

    schema = MESSAGES_SCHEMA

    def __init__(
        self,
        host: str,
        port: int = 1883,
        topics: str | Sequence[str] = (),
        *,
        qos: int = 1,
        client_id: str | None = None,
        version: str = "3.1.1",
        share_group: str | None = None,
        username: str | None = None,
        password_file: str | None = None,
        tls: bool = False,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        require_paho()
        self._options = MqttOptions(
            host=host,
            port=port,
            topics=topics_of(topics),
            qos=qos,
            client_id=client_id,
            version=version,
            share_group=share_group,
            username=username,
            password_file=password_file,
            tls=tls,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
        )

    def __repr__(self) -> str:
        options = self._options
        return f"MqttReceiver({options.host}:{options.port}, {', '.join(options.filters)})"

    def checkStart(self) -> None:
        """Read the password file and the certificates.

        Raises:
            ReceiverError: one of them cannot be used.
        """
        self._options.password()
        self._options.tls_context()

    def receive(self) -> None:
        """Store what comes until the receiver shall end; then acknowledge what is durable."""
        from penstock.receivers.mqtt.network import Network  # needs paho

        for one, another in overlapping(self._options.filters):
            _log.warning(
                "The topic filters %r and %r overlap: a broker may deliver a message once for each",
                one,
                another,
            )
        buffer = MessageBuffer(_BUFFER_BYTES)
        network = Network(self._options, self._client_id(), buffer, self.reportError)
        network.start()
        try:
            while not self.shallEnd():
                if (taken := buffer.take(_TAKE_S)) is not None:
                    self._store(taken, network)
            network.stop_receiving()
            if (taken := buffer.take(0)) is not None:
                self._store(taken, network)
            self._wait_until_acked()
        finally:
            network.close()

    def _store(self, taken: Taken, network: Network) -> None:
        network.wake()  # if the buffer was full, there is room again
        self.store(as_batch(taken.messages), ack=partial(network.durable, taken.receipts))

    def _wait_until_acked(self) -> None:
        """Wait until all that was stored is durable and has been given to the network.

        Otherwise the broker would deliver it again to the next start, also after a clean stop.
        """
        self.store([])
        acked = threading.Event()
        self.store([], ack=acked.set)  # acks come in the order of the stores
        if not acked.wait(_ACKS_S):
            raise ReceiverError(
                f"what was received was not durable within {_ACKS_S:g} s",
                operation="stop MQTT receiver",
                hint="nothing is lost: the broker delivers it again",
            )

    def _client_id(self) -> str:
        identity = self.identity()
        prefix = self._options.client_id or f"penstock-{identity.stream}"
        return f"{prefix}-{identity.receiver}"


def as_batch(messages: Messages) -> pa.RecordBatch:
    """Return messages as a batch of MESSAGES_SCHEMA."""
    heads = np.frombuffer(messages.heads, np.uint8)
    columns = [
        _as_text(messages.topics),
        pa.array(messages.payloads, pa.binary()),
        pa.array(((heads & 0x06) >> 1).astype(np.int8)),
        pa.array((heads & 0x01).astype(bool)),
        pa.array(np.full(len(heads), time.time_ns() // 1_000_000)),
    ]
    return pa.record_batch(columns, schema=MESSAGES_SCHEMA)


def _as_text(topics: list[bytes]) -> pa.Array:
    """Return topics as text; what is not UTF-8, which MQTT forbids, becomes U+FFFD."""
    try:
        return pa.array(topics, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([topic.decode(errors="replace") for topic in topics], pa.string())
