"""What a session owes the broker, against a model of a broker that keeps to the protocol.

The broker sends in order within its window, delivers again what was not acknowledged when a
connection was cut, and lets an identifier go only when the protocol does, or its message expires.
Connections are cut at any moment, with packets under way in both directions; blocks become durable
whenever they like.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.receivers.mqtt.deliveries import Deliveries, Receipt
from penstock.receivers.mqtt.packets import Messages, Packet, PacketReader

WINDOW = 4
PUBACK, PUBREC, PUBCOMP = 0x40, 0x50, 0x70


@dataclass
class Outgoing:
    """A message on its way from the broker."""

    number: int
    qos: int
    mid: bytes
    sent: bool = False
    """Whether it was sent before, so that the next time is marked with DUP."""
    is_recorded: bool = False
    """QoS 2: whether the PUBREC came, so that the broker goes on with PUBREL."""


class Session(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deliveries = Deliveries()
        self.waiting: deque[Outgoing] = deque()  # not sent: outside the window
        self.inflight: list[Outgoing] = []
        self.to_client: deque[tuple[str, Outgoing]] = deque()
        self.to_broker: deque[Packet] = deque()
        self.unstored: deque[tuple[list[int], Receipt]] = deque()
        self.stored: Counter[int] = Counter()
        self.qos: dict[int, int] = {}
        self.lost_acks: set[int] = set()  # QoS 1: the acknowledgement went down with its connection
        self.expired: set[int] = set()

    @initialize()
    def first_connection(self) -> None:
        assert not self.deliveries.connected(session_present=False)

    @rule(qos=st.integers(1, 2))
    def publish(self, qos: int) -> None:
        number = len(self.qos)
        self.qos[number] = qos
        self.waiting.append(Outgoing(number, qos, b""))
        self.fill_window()

    def fill_window(self) -> None:
        while self.waiting and len(self.inflight) < WINDOW:
            message = self.waiting.popleft()
            used = {other.mid for other in self.inflight}
            # The lowest free identifier: brokers may, and it is the hardest for the client.
            message.mid = next(m for i in range(1, 99) if (m := struct.pack(">H", i)) not in used)
            self.inflight.append(message)
            self.to_client.append(("publish", message))

    @precondition(lambda self: self.to_client)
    @rule()
    def receive(self) -> None:
        kind, message = self.to_client.popleft()
        if kind == "release":
            self.send(self.deliveries.release(message.mid))
            return
        head = 0x30 | message.qos << 1 | (8 if message.sent else 0)
        message.sent = True
        came = Messages(bytearray([head]), [b"t"], [b"%d" % message.number], [message.mid], 1)
        receipt, acks = self.deliveries.admit(came)
        self.send(acks)
        if len(came):
            self.unstored.append(([message.number], receipt))

    @precondition(lambda self: self.unstored)
    @rule()
    def become_durable(self) -> None:
        numbers, receipt = self.unstored.popleft()
        self.stored.update(numbers)
        self.send(self.deliveries.durable(receipt))

    def send(self, acks: bytes) -> None:
        for packet in PacketReader(has_properties=False).feed(acks):
            assert isinstance(packet, Packet)
            owner = next(m for m in self.inflight if m.mid == packet.body)
            assert owner.number in self.stored, "acknowledged before it was durable"
            self.to_broker.append(packet)

    @precondition(lambda self: self.to_broker)
    @rule()
    def broker_receives(self) -> None:
        packet = self.to_broker.popleft()
        message = next(m for m in self.inflight if m.mid == packet.body)
        if packet.head == PUBREC:
            message.is_recorded = True
            self.to_client.append(("release", message))
        else:
            assert (packet.head, message.qos) in ((PUBACK, 1), (PUBCOMP, 2))
            self.inflight.remove(message)
            self.fill_window()

    @rule(expiring=st.sets(st.integers(0, WINDOW - 1)))
    def cut(self, expiring: set[int]) -> None:
        """Lose the connection and what was under way; connect to the same session.

        Some messages expire meanwhile, and others get their identifiers.
        """
        for packet in self.to_broker:
            if packet.head == PUBACK:
                owner = next(m for m in self.inflight if m.mid == packet.body)
                self.lost_acks.add(owner.number)
        self.to_client.clear()
        self.to_broker.clear()
        self.deliveries.disconnected()
        for message in self.inflight:
            message.sent = True  # as far as the broker knows
        gone = [m for i, m in enumerate(self.inflight) if i in expiring and not m.is_recorded]
        self.expired.update(message.number for message in gone)
        self.inflight = [message for message in self.inflight if message not in gone]
        self.fill_window()
        self.to_client.clear()
        assert not self.deliveries.connected(session_present=True)
        self.to_client.extend(
            ("release" if message.is_recorded else "publish", message) for message in self.inflight
        )

    @invariant()
    def no_message_is_taken_twice_without_need(self) -> None:
        twice = {number for number, times in self.stored.items() if times > 1}
        assert all(self.qos[number] == 1 for number in twice)
        assert twice <= self.lost_acks

    def teardown(self) -> None:
        """Let everything run dry: nothing may be lost or stuck."""
        while self.to_client or self.unstored or self.to_broker:
            for step, has_work in (
                (self.receive, self.to_client),
                (self.become_durable, self.unstored),
                (self.broker_receives, self.to_broker),
            ):
                if has_work:
                    step()
        self.no_message_is_taken_twice_without_need()
        assert not self.inflight
        assert set(self.stored) >= set(self.qos) - self.expired


Session.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestSession = Session.TestCase


def message(head: int, mid: int, payload: bytes = b"p") -> Messages:
    return Messages(bytearray([head]), [b"t"], [payload], [struct.pack(">H", mid)], 1)


def test_a_lost_session_is_told_and_its_receipts_are_void() -> None:
    deliveries = Deliveries()
    assert not deliveries.connected(session_present=False)
    receipt, _ = deliveries.admit(message(0x32, 1))
    deliveries.disconnected()
    assert deliveries.connected(session_present=False)
    assert deliveries.durable(receipt) == b""
    _, acks = deliveries.admit(again := message(0x3A, 1))
    assert (len(again), acks) == (1, b""), "the identifier means another message now"


def test_a_first_session_after_failed_connections_is_not_a_lost_one() -> None:
    deliveries = Deliveries()
    deliveries.disconnected()
    assert not deliveries.connected(session_present=False)


def test_an_acknowledgement_waits_for_its_message_on_the_new_connection() -> None:
    deliveries = Deliveries()
    deliveries.connected(session_present=False)
    receipt, _ = deliveries.admit(message(0x32, 1))
    deliveries.disconnected()
    deliveries.connected(session_present=True)
    assert deliveries.durable(receipt) == b""
    _, acks = deliveries.admit(again := message(0x3A, 1))
    assert (len(again), acks) == (0, b"\x40\x02\x00\x01")


def test_a_message_without_dup_is_always_taken() -> None:
    deliveries = Deliveries()
    deliveries.connected(session_present=False)
    for head in (0x32, 0x34):
        receipts = []
        for _ in range(2):
            receipt, acks = deliveries.admit(came := message(head, 1))
            assert (len(came), acks) == (1, b"")
            receipts.append(receipt)
        assert all(deliveries.durable(receipt) for receipt in receipts)


def test_a_release_that_was_forgotten_is_answered() -> None:
    deliveries = Deliveries()
    deliveries.connected(session_present=True)
    assert deliveries.release(b"\x00\x07") == b"\x70\x02\x00\x07"


def test_an_identifier_given_to_another_message_is_owed_nothing() -> None:
    deliveries = Deliveries()
    deliveries.connected(session_present=False)
    receipt, _ = deliveries.admit(message(0x32, 1))
    deliveries.disconnected()
    deliveries.connected(session_present=True)
    deliveries.durable(receipt)
    deliveries.admit(message(0x32, 1))  # the broker dropped the first one
    deliveries.disconnected()
    deliveries.connected(session_present=True)
    _, acks = deliveries.admit(again := message(0x3A, 1))
    assert (len(again), acks) == (0, b""), "it is not durable yet"


def test_an_identifier_given_again_while_the_connection_was_lost_swallows_no_message() -> None:
    deliveries = Deliveries()
    deliveries.connected(session_present=False)
    first, _ = deliveries.admit(message(0x32, 7, b"A"))
    deliveries.disconnected()
    assert deliveries.durable(first) == b""
    for _ in range(2):  # A expires, B is sent and not read, then sent again
        deliveries.connected(session_present=True)
        deliveries.disconnected()
    deliveries.connected(session_present=True)
    second, acks = deliveries.admit(came := message(0x3A, 7, b"B"))
    assert (len(came), acks) == (1, b"")
    assert deliveries.durable(second) == b"\x40\x02\x00\x07"


def test_a_message_that_becomes_durable_late_acknowledges_no_other_of_its_identifier() -> None:
    for head in (0x32, 0x34):
        deliveries = Deliveries()
        deliveries.connected(session_present=False)
        first, _ = deliveries.admit(message(head, 7, b"A"))
        deliveries.disconnected()
        deliveries.connected(session_present=True)
        second, _ = deliveries.admit(message(head, 7, b"B"))
        assert deliveries.durable(first) == b""
        assert deliveries.durable(second) != b""
