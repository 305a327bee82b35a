"""One connection to a broker: paho's client, with the hot path and the acknowledgements replaced.

paho (2.x) speaks MQTT with the broker, but for PUBLISH and PUBREL. These two are taken from the
stream before paho sees them, for two reasons:

- paho answers a PUBLISH of QoS 2 with PUBREC at once, also with ``manual_ack``. The broker then
  forgets the message, which at that time is in this process's memory only: a kill would lose it.
- it reads each packet in three system calls, and makes an object of it. Cutting whole chunks is
  several times as fast (bench/mqtt.py).

For that this module overrides and calls some of paho's private methods, all of them named in
``_HOOKS``; it refuses a version of paho that lacks one.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.exception import MQTTException
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.errors import ConfigError
from penstock.receivers.mqtt.failures import refused
from penstock.receivers.mqtt.options import MqttOptions
from penstock.receivers.mqtt.packets import (
    DISCONNECT,
    PINGREQ,
    PUBREL,
    Messages,
    PacketReader,
    malformed,
)

KEEPALIVE_S = 15
_CONNECT_TIMEOUT_S = 4.0
_READ_BYTES = 256 << 10
_READS_A_ROUND = 8
_RECEIVE_MAXIMUM = 10_000
_NEVER_S = 0xFFFFFFFF
_SEND_RETAINED_FOR_NEW = 1  # MQTT 5, 3.8.3.1: not again when a client only renews what it has
_FILTERS_A_PACKET = 8
"""AWS IoT closes the connection at the ninth, others at the eleventh."""
_FIRST_FAILURE = 0x80
_TYPE = 0xF0
_CONNACK = 0x20
_OF_NO_CONCERN = 0  # a packet type for which paho does nothing more than to send the bytes
_HOOKS = (
    "_create_socket",
    "_in_packet",
    "_packet_handle",
    "_packet_queue",
    "_packet_read",
    "_sock_recv",
)


class Listener(Protocol):
    """What a client tells, from the thread that calls ``read``."""

    def on_connected(self, *, session_present: bool) -> None:
        """The broker took the connection; before any of its messages."""

    def on_messages(self, messages: Messages) -> None:
        """Messages came."""

    def on_release(self, mid: bytes) -> None:
        """A PUBREL came."""


class BrokerClient(paho.Client):
    """A connection, used by one thread, which waits for the socket itself. Never reused.

    ``failure`` says why it ended, once ``socket()`` is None; not when only the network failed.
    """

    def __init__(self, options: MqttOptions, client_id: str, listener: Listener) -> None:
        is_v5 = options.version == "5"
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=paho.MQTTv5 if is_v5 else paho.MQTTv311,
            clean_session=None if is_v5 else False,
            reconnect_on_failure=False,
        )
        names = vars(paho.Client).keys() | vars(self).keys()
        if missing := [name for name in _HOOKS if name not in names]:
            raise ConfigError(
                f"this version of paho-mqtt has no {', '.join(missing)}",
                operation="set up MQTT receiver",
                hint="pip install 'paho-mqtt>=2.1,<3'",
            )
        self.failure: Exception | None = None
        self.received_bytes = 0
        self.is_subscribed = False
        self._said_goodbye = False
        self._packets_left: deque[Sequence[str]] = deque()
        self._asked: Sequence[str] = ()
        self._options = options
        self._listener = listener
        self._reader = PacketReader(has_properties=is_v5)
        self.on_connect = self._connected
        self.on_subscribe = self._subscribed
        self.on_disconnect = self._disconnected

    def open(self) -> None:
        """Connect, and send CONNECT; what the broker answers comes with ``read``.

        Raises:
            OSError: no connection.
            ReceiverError: a file of a secret cannot be used.
        """
        options = self._options
        if options.username is not None:
            self.username_pw_set(options.username, options.password())
        if options.version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = _NEVER_S
            properties.ReceiveMaximum = _RECEIVE_MAXIMUM
            self.connect(
                options.host, options.port, KEEPALIVE_S, clean_start=False, properties=properties
            )
        else:
            self.connect(options.host, options.port, KEEPALIVE_S)

    def is_usable(self) -> bool:
        """Whether there is a connection, and the broker has not refused what we want of it."""
        return self.socket() is not None and self.failure is None

    def send(self, packets: bytes) -> None:
        """Send whole packets, now or when the socket takes them; nothing after ``goodbye``."""
        if packets and self.socket() is not None and not self._said_goodbye:
            self._packet_queue(_OF_NO_CONCERN, packets, 0, 0)

    def goodbye(self) -> None:
        """Tell the broker that this connection ends in order; it closes it then."""
        self.send(DISCONNECT)
        self._said_goodbye = True

    def close(self) -> None:
        """Close the connection, if it is still open."""
        if (connection := self.socket()) is not None:
            connection.close()

    @property
    def ping_interval_s(self) -> float:
        """How often to ask: twice in the time after which the broker gives a client up."""
        return min(self.keepalive or KEEPALIVE_S, KEEPALIVE_S) / 2

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.send(PINGREQ)

    def pending(self) -> bool:
        """Whether TLS holds bytes that waiting for the socket does not show."""
        connection = self.socket()
        return hasattr(connection, "pending") and connection.pending() > 0  # type: ignore[union-attr]

    # -- in place of paho's --

    def _create_socket(self) -> socket.socket:
        """Connect; paho's own way leaves a socket open when the TLS handshake fails."""
        address = self._options.host, self._options.port
        connection = socket.create_connection(address, _CONNECT_TIMEOUT_S)
        try:
            context = self._options.tls_context()
            if context is None:
                return connection
            return context.wrap_socket(connection, server_hostname=address[0])
        except BaseException:
            connection.close()
            raise

    def _packet_read(self) -> MQTTErrorCode:
        """Read and handle all that has arrived, up to some bytes."""
        for _ in range(_READS_A_ROUND):
            try:
                chunk = self._sock_recv(_READ_BYTES)
            except BlockingIOError:
                return MQTTErrorCode.MQTT_ERR_AGAIN
            except OSError as error:
                self.failure = error
                return MQTTErrorCode.MQTT_ERR_CONN_LOST
            if not chunk:
                return MQTTErrorCode.MQTT_ERR_CONN_LOST
            self.received_bytes += len(chunk)
            code = self._take(chunk)
            if code != MQTTErrorCode.MQTT_ERR_SUCCESS or self.socket() is None:
                return code
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _take(self, chunk: bytes) -> MQTTErrorCode:
        for event in self._reader.feed(chunk):
            if not self.is_connected() and (isinstance(event, Messages) or event.head != _CONNACK):
                raise malformed("its first packet is not a CONNACK")
            if isinstance(event, Messages):
                self._listener.on_messages(event)
            elif event.head & _TYPE == PUBREL:
                self._listener.on_release(event.body[:2])
            else:
                code = self._give_to_paho(event.head, event.body)
                if code != MQTTErrorCode.MQTT_ERR_SUCCESS or self.socket() is None:
                    return code
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _give_to_paho(self, head: int, body: bytes) -> MQTTErrorCode:
        self._in_packet["command"] = head
        self._in_packet["packet"] = bytearray(body)
        self._in_packet["remaining_length"] = len(body)
        try:
            code = self._packet_handle()
        except MQTTException as error:
            raise malformed(str(error)) from error
        return MQTTErrorCode.MQTT_ERR_SUCCESS if code is None else code

    # -- callbacks --

    def _connected(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            self.failure = refused("refused the connection", str(reason))
            return
        self._listener.on_connected(session_present=flags.session_present)
        self._packets_left = _in_packets(self._options.filters)
        self._subscribe_next()

    def _subscribe_next(self) -> None:
        """Send the next SUBSCRIBE; each is answered before the next one."""
        self._asked = self._packets_left.popleft()
        qos = self._options.qos
        if self._options.version == "5":
            wanted = SubscribeOptions(qos=qos, retainHandling=_SEND_RETAINED_FOR_NEW)
            self.subscribe([(topic, wanted) for topic in self._asked])
        else:
            self.subscribe([(topic, qos) for topic in self._asked])

    def _subscribed(
        self,
        client: paho.Client,
        userdata: object,
        mid: int,
        reasons: list[ReasonCode],
        properties: Properties | None,
    ) -> None:
        for topic, reason in zip(self._asked, reasons, strict=True):
            if reason.value >= _FIRST_FAILURE:
                self.failure = refused(f"refused {topic!r}", str(reason))
            elif reason.value < self._options.qos:
                self.failure = refused(
                    f"granted only QoS {reason.value} for {topic!r}", "QoS not supported"
                )
        if self.failure is None and self._packets_left:
            self._subscribe_next()
            return
        self.is_subscribed = self.failure is None
        if self.is_subscribed:
            for packet in _in_packets(self._options.covered):
                self.unsubscribe(list(packet))

    def _disconnected(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.DisconnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if self.failure is None and flags.is_disconnect_packet_from_server:
            self.failure = refused("ended the connection", str(reason))


def _in_packets(filters: Sequence[str]) -> deque[Sequence[str]]:
    starts = range(0, len(filters), _FILTERS_A_PACKET)
    return deque(filters[start : start + _FILTERS_A_PACKET] for start in starts)
