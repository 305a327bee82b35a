"""The frequent MQTT packets: decodes PUBLISH, and encodes acknowledgements.

A packet is one byte (type, and for PUBLISH the flags DUP, QoS and RETAIN), a length of one to four
bytes, and that many bytes. Here a chunk of the stream is cut into packets in one pass, without a
read or an object per packet beside its topic and payload; this is what a receiver's speed depends
on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import ReceiverError

DISCONNECT = b"\xe0\x00"
PINGREQ = b"\xc0\x00"
PUBREL = 0x60

_PUBLISH = 0x30
_TYPE = 0xF0
_QOS = 0x06
_PUBACK = b"\x40\x02"
_PUBREC = b"\x50\x02"
_PUBCOMP = b"\x70\x02"
_LENGTH_BYTES = 4


class Packet(NamedTuple):
    """A packet that is not a PUBLISH."""

    head: int
    body: bytes


@dataclass(slots=True)
class Messages:
    """Messages in the order of their packets, a list for each part."""

    heads: bytearray = field(default_factory=bytearray)
    """The first byte of each packet: see ``qos_of`` and ``is_dup``; its lowest bit is RETAIN."""
    topics: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    mids: list[bytes] = field(default_factory=list)
    """The packet identifiers, two bytes each; empty for QoS 0."""
    size_bytes: int = 0
    """What they take in memory, about."""

    def __len__(self) -> int:
        return len(self.heads)

    def extend(self, other: Messages) -> None:
        """Add other messages after these."""
        self.heads += other.heads
        self.topics += other.topics
        self.payloads += other.payloads
        self.mids += other.mids
        self.size_bytes += other.size_bytes

    def keep(self, kept: list[int]) -> None:
        """Keep the messages at these places, and no other."""
        self.heads = bytearray(self.heads[i] for i in kept)
        self.topics = [self.topics[i] for i in kept]
        self.payloads = [self.payloads[i] for i in kept]
        self.mids = [self.mids[i] for i in kept]


def qos_of(head: int) -> int:
    """Return the QoS in a PUBLISH packet's first byte."""
    return (head & _QOS) >> 1


def is_dup(head: int) -> bool:
    """Whether a PUBLISH packet's first byte says that the broker has sent it before."""
    return bool(head & 0x08)


def puback(mids: list[bytes]) -> bytes:
    """Return the packets that acknowledge messages of QoS 1."""
    return _PUBACK + _PUBACK.join(mids) if mids else b""


def pubrec(mids: list[bytes]) -> bytes:
    """Return the packets that take over messages of QoS 2."""
    return _PUBREC + _PUBREC.join(mids) if mids else b""


def pubcomp(mid: bytes) -> bytes:
    """Return the packet that ends the exchange of a message of QoS 2."""
    return _PUBCOMP + mid


class PacketReader:
    """Cuts one connection's bytes, however they are cut into chunks, into messages and packets.

    Args:
        has_properties: whether PUBLISH packets have properties, as in MQTT 5.
    """

    def __init__(self, *, has_properties: bool) -> None:
        self._has_properties = has_properties
        self._unread = bytearray()
        self._needed = 0  # so many bytes make the unfinished packet whole, as far as is known

    def feed(self, chunk: bytes) -> list[Messages | Packet]:
        """Return what the chunk completes, in order; neighbouring messages are together.

        Raises:
            ReceiverError: the bytes are not MQTT; the reader is of no further use.
        """
        if self._unread:
            self._unread += chunk
            if len(self._unread) < self._needed:
                return []  # a large message is put together once, not for each of its chunks
            chunk = bytes(self._unread)
        found: list[Messages | Packet] = []
        try:
            end = self._cut(chunk, found)
        except IndexError as e:
            raise malformed("a packet ends within a field") from e
        self._unread = bytearray(memoryview(chunk)[end:])
        return found

    def _cut(self, data: bytes, found: list[Messages | Packet]) -> int:
        """Add all whole packets to ``found``; return where the unfinished one begins."""
        at, size = 0, len(data)
        self._needed = 0
        messages: Messages | None = None
        while at + 1 < size:
            head, length, body = data[at], data[at + 1], at + 2
            if length > 127:
                if at + 1 + _LENGTH_BYTES > size and min(data[at + 1 :]) > 127:
                    break  # the length itself is not all there
                length, body = _varint(data, at + 1)
            end = body + length
            if end > size:
                self._needed = end - at
                break
            if head & _TYPE == _PUBLISH:
                if messages is None:
                    messages = Messages()
                    found.append(messages)
                self._add(messages, data, head, body, end)
            else:
                messages = None
                found.append(Packet(head, data[body:end]))
            at = end
        return at

    def _add(self, messages: Messages, data: bytes, head: int, body: int, end: int) -> None:
        topic = body + 2
        at = topic + (data[body] << 8 | data[body + 1])
        messages.topics.append(data[topic:at])
        if head & _QOS:
            messages.mids.append(data[at : at + 2])
            at += 2
        else:
            messages.mids.append(b"")
        if self._has_properties:
            length, at = _varint(data, at)
            at += length
        if at > end or head & _QOS == _QOS:
            raise malformed("a PUBLISH packet contradicts itself")
        messages.heads.append(head)
        messages.payloads.append(data[at:end])
        messages.size_bytes += end - body


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable byte integer, and where it ends."""
    value = 0
    for shift in range(0, 7 * _LENGTH_BYTES, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise malformed("a length has more than four bytes")


def malformed(what: str) -> ReceiverError:
    """Return the error for bytes that are not MQTT."""
    return ReceiverError(
        f"the broker sent malformed MQTT: {what}",
        operation="read from MQTT broker",
        hint="check that host and port are those of an MQTT broker, without TLS unless it is set",
    )
