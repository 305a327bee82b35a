"""A request's records on their way through the journal, and the acks' way back to the event loop.

Threads: requests live on the event loop. The journal's encoding thread places their records, its
publishing thread acks them. Acks do not wake the loop one by one: those of a publish come back to
back, and the first one's wake-up finds most of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.journal import DeferredPosition
from penstock.receivers.http.answers import Placement, RefusedError
from penstock.receivers.http.key_window import KeyWindow
from penstock.receivers.http.keys import KeptKey


class PendingStore(DeferredPosition):
    """The records of one request, until they are durable or refused.

    Args:
        acks: gets this when the records are durable.
        window: where the key goes, if there is one.
        key: hash of the Idempotency-Key.
        content: digest of what was sent with it.
    """

    __slots__ = ("_acks", "_outcome", "_window", "at", "content", "garbage", "key", "time_ms")

    def __init__(
        self, acks: Acks, window: KeyWindow, key: bytes | None = None, content: bytes = b""
    ) -> None:
        self._acks = acks
        self._window = window
        self.key = key
        self.content = content
        self.time_ms = window.clock.time_ms()
        self.at: Placement | None = None
        self.garbage: tuple[str, ...] = ()
        """Files that nothing names any more, once this is durable."""
        self._outcome: asyncio.Future[Placement | RefusedError] = acks.loop.create_future()

    def place(self, writer: str, start_offset: int, end_offset: int) -> None:
        """See DeferredPosition."""
        self.at = Placement(writer, start_offset, end_offset)
        if self.key is not None:
            self._window.add(KeptKey(self.key, self.content, self.at, self.time_ms))

    def value(self) -> Any:
        """See DeferredPosition."""
        assert self.at is not None  # it was placed
        position = self._window.position(self.at.writer, self.time_ms)
        if position is None:
            return None
        self.garbage = position.garbage
        return position.value

    def ack(self) -> None:
        """Called by the journal when the records are durable."""
        self._acks.put(self)

    async def settled(self) -> Placement:
        """Wait for the outcome, as the request that it is; RefusedError is raised."""
        return _result(await self._outcome)

    async def settled_elsewhere(self) -> Placement:
        """Wait for the outcome as another request does, whose end is not that of this one."""
        return _result(await asyncio.shield(self._outcome))

    def settle(self, outcome: Placement | RefusedError) -> None:
        """Let the request be answered; on the event loop. What comes later is of no effect."""
        if not self._outcome.done():
            self._outcome.set_result(outcome)


def _result(outcome: Placement | RefusedError) -> Placement:
    if isinstance(outcome, RefusedError):
        raise outcome
    return outcome


class Acks:
    """Hands acks from the journal's thread to the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, durable: Callable[[PendingStore], None]
    ) -> None:
        self.loop = loop
        self._durable = durable
        self._waiting: deque[PendingStore] = deque()
        self._is_woken = False

    def put(self, pending: PendingStore) -> None:
        """Have ``durable(pending)`` called on the loop, if that still runs; from any thread."""
        self._waiting.append(pending)
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # closed: the server gave this request up
                self.loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._is_woken = False  # first, so that what comes while this runs wakes the loop again
        while self._waiting:
            self._durable(self._waiting.popleft())
