"""Connections of the dashboard: bounded in number, and closed when their client stands still.

The dashboard is in a driver's process: connections that are opened and left would take the
descriptors that its batches need, and uvicorn waits for a request's head for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_STILL_S = 15.0
_MOST = 200


class BoundedProtocol(H11Protocol):
    """Uvicorn's protocol of one connection, with these two bounds."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > _MOST:
            transport.abort()
        else:
            self._look_later()

    def _look_later(self) -> None:
        self.loop.call_later(_STILL_S, self._look, self._progress())

    def _look(self, before: object) -> None:
        """Close the connection if nothing was done since, and it is the client who is awaited."""
        if self.transport.is_closing():
            return
        now = self._progress()
        if now == before and not self._is_answering():
            self.transport.abort()
        else:
            self._look_later()

    def _progress(self) -> tuple[Any, ...]:
        """Return how far the newest request is; a part of a head is not progress."""
        cycle = self.cycle
        if cycle is None:
            return ()
        return id(cycle), cycle.more_body, cycle.response_started, cycle.response_complete

    def _is_answering(self) -> bool:
        """Whether a page is being made."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_started
