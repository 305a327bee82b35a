"""A request's way from its head to its answer.

Invariants:

1. 200 is answered only after the publish that holds the request's records.
2. After any other answer nothing of the request is stored; except after 503, and where the client
   did not wait for its answer: then it is unknown, and an Idempotency-Key makes it safe to repeat.
3. A key is looked up and taken into ``_in_flight`` in one step of the event loop, so that of two
   equal requests one is stored and both get its answer.
4. Nothing here blocks the event loop: large bodies are parsed and stored by other threads.
5. While ``_window`` is None (no journal) nothing is stored; ``pause`` returns when no thread of
   ours stores any more, so no store of before reaches the journal's next writer.

A bare ASGI application: Starlette's routing, Request and Response cost half as much again for each
request as all of this does (bench/http_receiver.py shows both).
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from penstock.clock import SteadyClock
from penstock.errors import ConfigError, PenstockError
from penstock.receivers.http.answers import Answer, Placement, RefusedError
from penstock.receivers.http.bodies import BodyParser
from penstock.receivers.http.content import expand_gzip
from penstock.receivers.http.exchange import (
    ClientGoneError,
    Incoming,
    Message,
    Receive,
    Send,
    send_answer,
)
from penstock.receivers.http.head import Head, Kind, check_caller, read_head
from penstock.receivers.http.key_window import KeyWindow
from penstock.receivers.http.keys import KeptKey, KnownKeys, content_digest, key_hash
from penstock.receivers.http.settings import HttpSettings
from penstock.receivers.http.stores import Acks, PendingStore

_log = logging.getLogger(__name__)

_INLINE_BYTES = 32 << 10
"""A body of this size is parsed in well under a millisecond; larger ones go to another thread."""
_PARSERS = 2
_MAX_BACKLOG_BYTES = 64 << 20
"""Of bodies that are not yet durable, as far as they have arrived; one alone may exceed it."""
_BUSY_RETRY_S = 1
_OUTAGE_RETRY_S = 5
_NO_MORE_NOW = (
    "the stream accepts no more records now: its rate limit or a bound of its journal is reached;"
    " the receiver's log names the bound, and says what it waits for"
)

_T = TypeVar("_T")


class Journal(Protocol):
    """What the application needs of its receiver."""

    def tryStore(
        self, data: Any, position: Any = None, ack: Callable[[], None] | None = None
    ) -> int:
        """See Receiver.tryStore."""


class Application:
    """The ASGI application. All methods but the constructor belong to the event loop."""

    def __init__(
        self,
        journal: Journal,
        parser: BodyParser,
        settings: HttpSettings,
        token: bytes | None,
        delete: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._journal = journal
        self._parser = parser
        self._settings = settings
        self._authorization = None if token is None else b"Bearer " + token
        self._delete = delete
        self._threads = ThreadPoolExecutor(_PARSERS, thread_name_prefix="penstock-http-parse")
        self._acks: Acks
        self._window: KeyWindow | None = None
        self._known = KnownKeys(settings.idempotency_window_ms)
        self._key_clock = SteadyClock()
        self._pending: set[PendingStore] = set()
        self._in_flight: dict[bytes, PendingStore] = {}
        self.backlog_bytes = 0
        """Of all bodies that are not durable yet, as far as they have arrived."""
        self._in_threads = 0
        self._is_stopping = False

    # -- what the server calls --

    def resume(self, window: KeyWindow, keys: list[KeptKey]) -> None:
        """Take requests, on top of what is durable."""
        self._acks = Acks(asyncio.get_running_loop(), self._on_durable)
        self._known = KnownKeys(self._settings.idempotency_window_ms, keys)
        self._key_clock = window.clock
        self._window = window

    async def pause(self) -> None:
        """Refuse requests, also those whose records are not durable yet."""
        self._window = None
        self.give_up()
        while self._in_threads:
            await asyncio.sleep(0.005)
        self.give_up()

    def give_up(self) -> None:
        """Refuse the requests whose records are not durable yet."""
        for pending in list(self._pending):
            pending.settle(_no_journal())

    def stop(self) -> None:
        """Say that no further requests are wanted."""
        self._is_stopping = True

    def close(self) -> None:
        """Free the threads."""
        self._threads.shutdown()

    # -- requests --

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        incoming = Incoming(receive)
        try:
            answer = await self._answer(scope, incoming)
        except ClientGoneError:
            return
        except RefusedError as refusal:
            answer = refusal.answer()
        except Exception:
            _log.exception("An HTTP request failed")
            answer = RefusedError(500, "internal error").answer()
        await send_answer(answer, send, incoming, scope["headers"])

    async def _answer(self, scope: Message, incoming: Incoming) -> Answer:
        path, method = scope["path"], scope["method"]
        if path == "/":
            if method != "POST":
                raise RefusedError(405, "only POST is allowed here", headers=((b"allow", b"POST"),))
            return Answer.stored(await self._post(scope["headers"], incoming))
        if path == "/healthz":
            if method not in ("GET", "HEAD"):
                raise RefusedError(
                    405, "only GET is allowed here", headers=((b"allow", b"GET, HEAD"),)
                )
            return self._health()
        raise RefusedError(404, "POST records to /")

    async def _post(self, headers: Iterable[tuple[bytes, bytes]], incoming: Incoming) -> Placement:
        check_caller(headers, self._authorization)
        head = read_head(headers, self._parser.types)
        if self._window is None:
            raise _no_journal()
        claim = _Claim(self)
        try:
            body = await self._read(head, incoming, claim)
            return await self._take(head, body, claim)
        finally:
            claim.release()

    async def _read(self, head: Head, incoming: Incoming, claim: _Claim) -> bytes:
        most = self._settings.max_body_bytes
        if (head.length or 0) > most:
            raise _body_too_large(most)
        pieces, size = [], 0
        while not incoming.is_whole:
            piece = await incoming.read()
            size += len(piece)
            if size > most:
                raise _body_too_large(most)
            claim.add(len(piece))  # what has arrived: a length is a client's word only
            pieces.append(piece)
        return piece if len(pieces) == 1 else b"".join(pieces)

    async def _take(self, head: Head, body: bytes, claim: _Claim) -> Placement:
        if head.is_gzip:
            most = self._settings.max_expanded_bytes
            body = await self._in_thread(expand_gzip, body, most)
            claim.add(len(body))
        if head.key is None:
            return await self._store(None, b"", head.kind, body)
        key, content = key_hash(head.key), await self._digest(head.kind, body)
        kept = self._known.find(key, self._key_clock.time_ms())
        first = kept or self._in_flight.get(key)
        if first is None:
            return await self._store(key, content, head.kind, body)
        if first.content != content:
            raise RefusedError(422, "the Idempotency-Key was used before, with another body")
        return first.at if isinstance(first, KeptKey) else await first.settled_elsewhere()

    async def _digest(self, kind: Kind, body: bytes) -> bytes:
        if len(body) <= _INLINE_BYTES:
            return content_digest(kind, body)
        return await self._in_thread(content_digest, kind, body)

    async def _store(self, key: bytes | None, content: bytes, kind: Kind, body: bytes) -> Placement:
        if self._window is None:
            raise _no_journal()
        pending = PendingStore(self._acks, self._window, key, content)
        self._pending.add(pending)
        if key is not None:
            self._in_flight[key] = pending
        try:
            if len(body) <= _INLINE_BYTES:
                wait_ms = self._parse_and_store(kind, body, pending)
            else:
                wait_ms = await self._in_thread(self._parse_and_store, kind, body, pending)
            if wait_ms:
                raise RefusedError(429, _NO_MORE_NOW, retry_after_s=math.ceil(wait_ms / 1000))
            return await pending.settled()
        except RefusedError as refusal:
            pending.settle(refusal)  # the same for requests that came again meanwhile
            raise
        finally:
            pending.settle(_no_journal())  # of no effect, unless something unforeseen came up
            self._pending.discard(pending)
            if key is not None:
                del self._in_flight[key]

    def _parse_and_store(self, kind: Kind, body: bytes, pending: PendingStore) -> int:
        """Hand the records of a body to the journal; return as tryStore does. In any thread."""
        records = self._parser.parse(kind, body)
        try:
            return self._journal.tryStore(records, pending, pending.ack)
        except ConfigError as e:
            raise RefusedError(400, e.message) from e
        except PenstockError as e:
            raise _no_journal() from e

    def _in_thread(self, work: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        future = asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        self._in_threads += 1
        future.add_done_callback(self._thread_done)
        return asyncio.shield(future)  # its end counts, not that of whom it was for

    def _thread_done(self, future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1

    def _on_durable(self, pending: PendingStore) -> None:
        assert pending.at is not None  # placed before it was published
        if pending.key is not None:
            self._known.add(KeptKey(pending.key, pending.content, pending.at, pending.time_ms))
        pending.settle(pending.at)
        if pending.garbage:
            self._in_thread(self._delete, pending.garbage)

    def _health(self) -> Answer:
        is_open = self._window is not None
        state = {
            "state": "stopping" if self._is_stopping else "ok" if is_open else "no journal",
            "unacked_requests": len(self._pending),
            "unacked_bytes": self.backlog_bytes,
        }
        return Answer(200 if is_open else 503, (), json.dumps(state).encode())


class _Claim:
    """The part of the backlog that a request takes."""

    __slots__ = ("_application", "_bytes")

    def __init__(self, application: Application) -> None:
        self._application = application
        self._bytes = 0

    def add(self, size: int) -> None:
        """Claim more; 429 if that is too much together with others."""
        others = self._application.backlog_bytes - self._bytes
        self._bytes += size
        self._application.backlog_bytes += size
        if others and others + self._bytes > _MAX_BACKLOG_BYTES:
            raise RefusedError(
                429, "too many bytes wait to become durable", retry_after_s=_BUSY_RETRY_S
            )

    def release(self) -> None:
        """Give it all back."""
        self._application.backlog_bytes -= self._bytes


def _body_too_large(most: int) -> RefusedError:
    return RefusedError(413, f"the body is larger than {most} bytes")


def _no_journal() -> RefusedError:
    return RefusedError(503, "the journal cannot be written", retry_after_s=_OUTAGE_RETRY_S)
