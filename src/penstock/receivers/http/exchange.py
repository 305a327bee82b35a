"""ASGI's messages: a body coming in piece by piece, an answer going out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, TypeAlias

from penstock.receivers.http.answers import Answer

__all__ = ["ClientGoneError", "Incoming", "Message", "Receive", "Send", "send_answer"]

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_LINGER_S = 2.0


class ClientGoneError(Exception):
    """The client closed the connection before its body was whole."""


class Incoming:
    """The body of a request."""

    __slots__ = ("_receive", "is_whole")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_whole = False

    async def read(self) -> bytes:
        """Return the next piece.

        Raises:
            ClientGoneError: there will be none.
        """
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self.is_whole = not message.get("more_body", False)
        body: bytes = message.get("body", b"")
        return body


async def send_answer(
    answer: Answer, send: Send, incoming: Incoming, headers: Iterable[tuple[bytes, bytes]]
) -> None:
    """Send an answer; where it comes before the end of the body, close the connection after it."""
    length = (b"content-length", b"%d" % len(answer.body))
    given = [_JSON, length, *answer.headers]
    start: Message = {
        "type": "http.response.start",
        "status": answer.status,
        "headers": given,
    }
    body: Message = {"type": "http.response.body", "body": answer.body}
    if answer.status >= 400 and not incoming.is_whole and _has_body(request := dict(headers)):
        given.append((b"connection", b"close"))
        await send(start)
        await send({**body, "more_body": True})
        if b"expect" not in request:  # else the client has not begun to send it
            await _linger(incoming)
        body["body"] = b""
    else:
        await send(start)
    await send(body)


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


async def _linger(incoming: Incoming) -> None:
    """Let the client send on for a while, and drop it.

    Many clients read the answer only after they have sent the body, and a connection that is closed
    with unread bytes is reset, which may take the answer with it.
    """

    async def drop_rest() -> None:
        while not incoming.is_whole:
            await incoming.read()

    with suppress(ClientGoneError, asyncio.TimeoutError):
        await asyncio.wait_for(drop_rest(), _LINGER_S)
