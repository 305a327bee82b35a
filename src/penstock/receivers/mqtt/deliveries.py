"""Which messages a session still owes an acknowledgement: decisions, without I/O.

Invariants:

1. A message is acknowledged (PUBACK, or PUBREC for QoS 2) only after it is durable, in the order in
   which messages came.
2. Nothing is acknowledged into another session than its own: identifiers mean something else there.
3. A message that the broker sends again (with DUP) before it was acknowledged is not taken twice,
   also over connections: it is told by its identifier, which for QoS 2 stands for it until the
   broker's PUBREL sets it free. A message without DUP is always taken: rather twice than not.
4. After a connection was lost, an acknowledgement waits until the broker sends its message again on
   the new connection. Sent earlier it would cross that message, and the broker would be free to
   give the identifier to another message while we could not tell the two apart.

An acknowledgement that was sent and got lost with its connection cannot be told from one that
arrived: such a message of QoS 1 is taken twice. With QoS 2 the exchange goes on where it stood.

Source: MQTT 3.1.1 and 5.0, sections 4.3 and 4.4.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.receivers.mqtt.packets import Messages, is_dup, puback, pubcomp, pubrec, qos_of

__all__ = ["Deliveries", "Receipt"]


class Receipt(NamedTuple):
    """What is to be acknowledged when some messages are durable."""

    session: int
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
        self._pending: dict[bytes, int] = {}
        """Not durable yet -> the connection on which the broker last sent it."""
        self._owed: set[bytes] = set()
        """QoS 1, durable; its PUBACK waits for the broker to send the message again."""
        self._taken: set[bytes] = set()
        """QoS 2, durable, and not yet set free by a PUBREL."""

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
        known = (self._pending.keys(), self._owed, self._taken)
        if not all(mids.isdisjoint(messages.mids) for mids in known):
            acks = self._leave_out_known(messages)
        once = [mid for head, mid in zip(messages.heads, messages.mids, strict=True) if head & 0x02]
        exactly = [
            mid for head, mid in zip(messages.heads, messages.mids, strict=True) if head & 0x04
        ]
        for mids in (once, exactly):
            self._pending.update(dict.fromkeys(mids, self._connection))
        return Receipt(self._session, once, exactly), acks

    def durable(self, receipt: Receipt) -> bytes:
        """Note that messages are durable; return the acknowledgements to send."""
        if receipt.session != self._session:
            return b""
        self._taken.update(receipt.exactly_once)
        once, exactly = self._due(receipt.once), self._due(receipt.exactly_once)
        if len(once) < len(receipt.once):
            self._owed.update(set(receipt.once).difference(once))
        return puback(once) + pubrec(exactly)

    def release(self, mid: bytes) -> bytes:
        """Take the broker's PUBREL; return the PUBCOMP, also for an exchange that we forgot."""
        self._taken.discard(mid)
        return pubcomp(mid)

    def _due(self, mids: list[bytes]) -> list[bytes]:
        """Take these out of what is pending; return those that came on this connection."""
        here, pop = self._connection, self._pending.pop
        return [mid for mid in mids if pop(mid, here) == here]

    def _leave_out_known(self, messages: Messages) -> bytes:
        kept: list[int] = []
        acks: list[bytes] = []
        for i, (head, mid) in enumerate(zip(messages.heads, messages.mids, strict=True)):
            if not self._is_known(head, mid):
                self._owed.discard(mid)  # given to another message, so no longer owed
                kept.append(i)
            elif mid in self._pending:
                self._pending[mid] = self._connection  # acknowledged here once it is durable
            else:
                self._owed.discard(mid)
                acks.append(puback([mid]) if qos_of(head) == 1 else pubrec([mid]))
        messages.keep(kept)
        return b"".join(acks)

    def _is_known(self, head: int, mid: bytes) -> bool:
        if not is_dup(head):
            return False
        if qos_of(head) == 1:
            # What came on this very connection is another message: mosquitto with an unlimited
            # window gives an identifier again before it was acknowledged.
            before = self._pending.get(mid, self._connection) != self._connection
            return before or mid in self._owed
        return mid in self._pending or mid in self._taken
