"""MQTT's packets against paho's own decoder: any messages, cut into any chunks."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt import _packet
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.errors import ReceiverError
from penstock.receivers.mqtt.packets import (
    Messages,
    Packet,
    PacketReader,
    puback,
    pubcomp,
    pubrec,
    qos_of,
)

PINGRESP = b"\xd0\x00"

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")  # as MQTT has it

# (QoS, DUP, RETAIN, topic, payload, identifier, user property)
MESSAGE = st.tuples(
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.text(CHARACTERS, min_size=1, max_size=60),
    st.one_of(st.binary(max_size=40), st.integers(100, 20_000).map(bytes)),
    st.integers(1, 65_535),
    st.text(CHARACTERS, max_size=200),
)


def length_of(size: int) -> bytes:
    encoded = bytearray()
    while True:
        size, digit = divmod(size, 128)
        encoded.append(digit | 128 if size else digit)
        if not size:
            return bytes(encoded)


def publish(message: tuple[Any, ...], is_v5: bool) -> bytes:
    qos, dup, retain, topic, payload, mid, label = message
    name = topic.encode()
    body = struct.pack(">H", len(name)) + name
    if qos:
        body += struct.pack(">H", mid)
    if is_v5:
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = ("label", label)
        body += properties.pack()
    head = 0x30 | dup << 3 | qos << 1 | retain
    return bytes([head]) + length_of(len(body + payload)) + body + payload


def read(chunks: list[bytes], is_v5: bool) -> tuple[list[tuple[Any, ...]], list[Packet]]:
    reader = PacketReader(has_properties=is_v5)
    rows: list[tuple[Any, ...]] = []
    packets: list[Packet] = []
    for chunk in chunks:
        for event in reader.feed(chunk):
            if isinstance(event, Messages):
                rows += zip(event.heads, event.topics, event.mids, event.payloads, strict=True)
            else:
                packets.append(event)
    return rows, packets


def as_paho_reads(packet: bytes, is_v5: bool) -> tuple[Any, ...]:
    version = MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311
    body_at = next(i for i in range(1, 5) if packet[i] < 128) + 1
    found = _packet.decode_publish(packet[0], packet[body_at:], version)
    mid = struct.pack(">H", found.mid) if found.qos else b""
    return packet[0], found.topic, mid, found.payload


@given(st.lists(MESSAGE, max_size=8), st.booleans(), st.data())
def test_any_cut_gives_what_paho_reads(
    messages: list[tuple[Any, ...]], is_v5: bool, data: st.DataObject
) -> None:
    packets = [publish(message, is_v5) for message in messages]
    stream = b"".join(packet + PINGRESP for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    rows, others = read(chunks, is_v5)

    assert rows == [as_paho_reads(packet, is_v5) for packet in packets]
    assert others == [Packet(0xD0, b"")] * len(packets)


def test_byte_by_byte_also_after_a_large_message() -> None:
    messages = [(1, False, False, "t", bytes(size), 7, "") for size in (300, 0, 2, 20_000, 1)]
    stream = b"".join(publish(message, is_v5=False) for message in messages)

    rows, _ = read([stream[i : i + 1] for i in range(len(stream))], is_v5=False)

    assert [len(payload) for *_, payload in rows] == [300, 0, 2, 20_000, 1]


@pytest.mark.parametrize(
    ("packet", "is_v5"),
    [
        (b"\x32\xff\xff\xff\xff\x01", False),  # a length of five bytes
        (b"\x36\x05\x00\x01t\x00\x01", False),  # QoS 3
        (b"\x30\x03\x00\x09t" + bytes(20), False),  # a topic beyond its packet
        (b"\x32\x04\x00\x01t\x00" + bytes(20), False),  # an identifier beyond its packet
        (b"\x30\x00", False),  # nothing
        (b"\x30\x04\x00\x01t\x40" + bytes(80), True),  # properties beyond their packet
    ],
)
def test_what_is_no_mqtt_is_an_error(packet: bytes, is_v5: bool) -> None:
    with pytest.raises(ReceiverError, match="malformed MQTT"):
        read([packet], is_v5)


@given(st.lists(st.integers(0, 65_535), max_size=5))
def test_acknowledgements_are_one_packet_each(numbers: list[int]) -> None:
    mids = [struct.pack(">H", number) for number in numbers]

    _, packets = read([puback(mids) + pubrec(mids) + b"".join(map(pubcomp, mids))], is_v5=False)

    assert packets == [Packet(head, mid) for head in (0x40, 0x50, 0x70) for mid in mids]


def test_qos_is_read_from_the_first_byte() -> None:
    assert [qos_of(head) for head in (0x30, 0x31, 0x32, 0x3B, 0x3C)] == [0, 0, 1, 1, 2]
