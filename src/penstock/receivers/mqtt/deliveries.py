"""Which messages a session still owes an acknowledgement: decisions, without I/O.

Invariants:

1. A message is acknowledged (PUBACK, or PUBREC for QoS 2) only after it is durable, in the order in
   which messages came.
2. Nothing is acknowledged into another session than its own: identifiers mean something else there.
3. A message that the broker sends again (with DUP) before it was acknowledged is not taken twice,
   also over connections: it is told by its identifier, which for QoS 2 stands for it until the
   broker's PUBREL sets it free, and by its content, as a broker may give the identifier of an
   expired message to another one. A message without DUP is always taken: rather twice than not.
4. After a connection was lost, an acknowledgement waits until the broker sends its message again on
   the new connection. Sent earlier it would cross that message, and the broker would be free to
   give the identifier to another message while we could not tell the two apart.
5. A message that became durable while another one has its identifier acknowledges only itself: its
   acknowledgement is sent on the connection that it came on, or not at all.

An acknowledgement that was sent and got lost with its connection cannot be told from one that
arrived: such a message of QoS 1 is taken twice. With QoS 2 the exchange continues at the same step;
a broker that publishes a message again after its PUBREL (mosquitto 2.0.11, after a restart) cannot
be told from one that gave the identifier to another message with the same content.

Source: MQTT 3.1.1 and 5.0, sections 4.3 and 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from penstock.receivers.mqtt.packets import Messages, is_dup, puback, pubcomp, pubrec, qos_of

_Pending = tuple[int, int, int]
"""Its receipt's number, the connection on which the broker last sent it, and its content."""
_NOT_PENDING: _Pending = (0, -1, 0)
_NO_MID = b""
"""Messages of QoS 0 have no identifier."""


class Receipt(NamedTuple):
    """What is to be acknowledged when some messages are durable."""

    session: int
    connection: int
    """The one that they came on."""
    number: int
    """Tells it from all other receipts."""
    once: list[bytes]
    """Identifiers of messages of QoS 1."""
    exactly_once: list[bytes]
    """Identifiers of messages of QoS 2."""


class Deliveries:
    """The messages of one client's session, by identifier. Not thread-safe."""

    def __init__(self) -> None:
        self._session = 0
        self._connection = 0
        self._has_session = False
        self._receipts = 0
        self._pending: dict[bytes, _Pending] = {}
        """Not durable yet."""
        self._owed: dict[bytes, int] = {}
        """QoS 1, durable -> content; its PUBACK waits for the broker to send the message again."""
        self._taken: dict[bytes, int] = {}
        """QoS 2, durable, and not yet set free by a PUBREL -> content."""

    def disconnected(self) -> None:
        """Note that the connection is gone: no message came on the one that begins here."""
        self._connection += 1

    def connected(self, *, session_present: bool) -> bool:
        """Begin a connection; return whether the broker lost the session of the one before."""
        lost = self._has_session and not session_present
        self._has_session = True
        self._connection += 1
        if not session_present:
            self._session += 1
            self._pending.clear()
            self._owed.clear()
            self._taken.clear()
        return lost

    def admit(self, messages: Messages) -> tuple[Receipt, bytes]:
        """Take in messages; those that came before are taken out of ``messages``.

        Returns:
            The receipt for ``durable``, and the acknowledgements to send at once.
        """
        acks = b""
        known = (self._pending.keys(), self._owed.keys(), self._taken.keys())
        if not all(mids.isdisjoint(messages.mids) for mids in known):
            acks = self._leave_out_known(messages)
        self._receipts += 1
        receipt = Receipt(self._session, self._connection, self._receipts, [], [])
        for head, mid in zip(messages.heads, messages.mids, strict=True):
            if head & 0x06:
                (receipt.once if head & 0x02 else receipt.exactly_once).append(mid)
        came = zip(repeat(receipt.number), repeat(self._connection), _contents(messages))
        self._pending.update(zip(messages.mids, came, strict=False))
        self._pending.pop(_NO_MID, None)
        return receipt, acks

    def durable(self, receipt: Receipt) -> bytes:
        """Note that messages are durable; return the acknowledgements to send."""
        if receipt.session != self._session:
            return b""
        once = self._due(receipt, receipt.once, self._owed)
        exactly = self._due(receipt, receipt.exactly_once, self._taken)
        return puback(once) + pubrec(exactly)

    def release(self, mid: bytes) -> bytes:
        """Take the broker's PUBREL; return the PUBCOMP, also for an exchange that we forgot."""
        self._taken.pop(mid, None)
        return pubcomp(mid)

    def _due(self, receipt: Receipt, mids: list[bytes], durable: dict[bytes, int]) -> list[bytes]:
        """Take these out of what is pending; return those to acknowledge on this connection.

        What is durable and waits for the broker, and all of QoS 2, is noted in ``durable``.
        """
        here, pending = self._connection, self._pending
        due = []
        for mid in mids:
            number, connection, content = pending.get(mid, _NOT_PENDING)
            if number == receipt.number:
                del pending[mid]
                if connection != here or durable is self._taken:
                    durable[mid] = content
            else:  # another message has the identifier by now
                connection = receipt.connection
            if connection == here:
                due.append(mid)
        return due

    def _leave_out_known(self, messages: Messages) -> bytes:
        kept: list[int] = []
        acks: list[bytes] = []
        came = zip(messages.heads, messages.mids, _contents(messages), strict=True)
        for i, (head, mid, content) in enumerate(came):
            if not self._is_known(head, mid, content):
                self._owed.pop(mid, None)  # given to another message, so no longer owed
                self._taken.pop(mid, None)
                kept.append(i)
            elif mid in self._pending:  # acknowledged here once it is durable
                number, _, content = self._pending[mid]
                self._pending[mid] = number, self._connection, content
            else:
                self._owed.pop(mid, None)
                acks.append(puback([mid]) if qos_of(head) == 1 else pubrec([mid]))
        messages.keep(kept)
        return b"".join(acks)

    def _is_known(self, head: int, mid: bytes, content: int) -> bool:
        if not is_dup(head):
            return False
        _, connection, pending = self._pending.get(mid, _NOT_PENDING)
        is_pending = mid in self._pending and pending == content
        if qos_of(head) == 1:
            # What came on this very connection is another message: mosquitto with an unlimited
            # window gives an identifier again before it was acknowledged.
            return (is_pending and connection != self._connection) or (
                self._owed.get(mid) == content
            )
        return is_pending or self._taken.get(mid) == content


def _contents(messages: Messages) -> Iterator[int]:
    """Yield a number for the content of each message, which others have with a chance of 2^-64."""
    return map(hash, zip(messages.topics, messages.payloads, strict=True))
