"""What has come from the broker and was not yet stored: between the network and the storing thread.

The broker bounds it, too: it sends only so many messages without an acknowledgement (its in-flight
window). Where that window is wide, or there are none (QoS 0), the network thread stops reading when
the buffer is full, and TCP holds the broker back.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from penstock.receivers.mqtt.deliveries import Receipt
from penstock.receivers.mqtt.packets import Messages

_ENTRY_BYTES = 128
"""What the objects of a message take beside its content."""


class Taken(NamedTuple):
    """Messages to be stored together, and the receipts that become due with them."""

    messages: Messages
    receipts: list[Receipt]


class MessageBuffer:
    """Hands messages over in order. Thread-safe.

    Args:
        max_bytes: from when on it is full; what is put in all the same is kept, too.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._messages = Messages()
        self._receipts: list[Receipt] = []
        self._failure: Exception | None = None

    @property
    def is_full(self) -> bool:
        """Whether the network thread shall not read for now."""
        messages = self._messages
        return messages.size_bytes + len(messages) * _ENTRY_BYTES >= self._max_bytes

    def put(self, messages: Messages, receipt: Receipt) -> None:
        """Add messages."""
        with self._changed:
            self._messages.extend(messages)
            self._receipts.append(receipt)
            self._changed.notify()

    def fail(self, failure: Exception) -> None:
        """Let ``take`` raise: no more messages will be put in."""
        with self._changed:
            self._failure = failure
            self._changed.notify()

    def take(self, timeout_s: float) -> Taken | None:
        """Return all messages, after waiting for at least one; None if none came.

        Raises:
            Exception: what ``fail`` was given, once nothing is left to take.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._messages) or self._failure, timeout_s)
            if not len(self._messages):
                if self._failure is not None:
                    raise self._failure
                return None
            taken = Taken(self._messages, self._receipts)
            self._messages, self._receipts = Messages(), []
            return taken
