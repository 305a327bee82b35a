"""The thread that serves HTTP: uvicorn on an event loop of its own, beside the receiver's host."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any, TypeVar

import uvicorn

from penstock.errors import ReceiverError
from penstock.receivers.http import connection
from penstock.receivers.http.acceptor import Acceptor
from penstock.receivers.http.application import Application
from penstock.receivers.http.connection import LimitedConnection, check_uvicorn, close_late

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_START_S = 10.0
_CALL_S = 30.0
_DRAIN_S = 5.0
"""How long requests that are under way may take to become durable when the server stops."""
_CANCEL_S = 8
_JOIN_S = 10.0
_IDLE_S = 75
_SWEEP_S = 1.0


class HttpServer:
    """Serves an application in a thread, from ``start`` to ``stop``.

    Args:
        application: what to serve.
        listener: the socket to accept from; closed at the end.
        tls: for HTTPS.
        on_failure: called in the thread when it ends without being stopped.
    """

    def __init__(
        self,
        application: Application,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        on_failure: Callable[[BaseException | None], None],
    ) -> None:
        check_uvicorn()
        self._application = application
        self._on_failure = on_failure
        self._loop = _new_loop()
        self._config = _config(application)
        self._server = uvicorn.Server(self._config)
        self._acceptor = Acceptor(self._loop, listener, self._connection, tls, self._is_full)
        self._is_up = threading.Event()
        self._is_ending = False
        self._thread: threading.Thread

    def start(self, begin: Callable[[], None]) -> None:
        """Serve; ``begin`` is called on the loop before anything is accepted.

        Raises:
            ReceiverError: the loop did not begin in time.
        """
        self._thread = threading.Thread(
            target=self._run, args=(begin,), name="penstock-http", daemon=True
        )
        self._thread.start()
        if not self._is_up.wait(_START_S):
            raise ReceiverError("the HTTP server did not start", operation="start receiver")

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop, from another thread; return its result.

        Raises:
            ReceiverError: the loop has ended, or did not answer in time.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as e:
            work.close()
            raise _no_answer("has ended") from e
        try:
            return future.result(_CALL_S)
        except FutureTimeout as e:
            future.cancel()
            raise _no_answer(f"did not answer within {_CALL_S:.0f} s") from e

    def stop(self) -> None:
        """Accept nothing more, answer what is under way, and end the thread.

        Raises:
            ReceiverError: the thread did not end in time.
        """
        self._is_ending = True
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._begin_stop)
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            raise ReceiverError(
                f"the HTTP server did not end within {_JOIN_S:.0f} s",
                operation="stop receiver",
                hint="end the process; clients resend unanswered requests",
            )

    def _connection(self) -> LimitedConnection:
        state = self._server.server_state
        return LimitedConnection(
            config=self._config, server_state=state, app_state={}, _loop=self._loop
        )

    def _is_full(self, opening: int) -> bool:
        count = opening + len(self._server.server_state.connections)
        return count >= connection.max_connections()

    def _begin_stop(self) -> None:
        self._acceptor.close()
        self._application.stop()
        self._server.should_exit = True
        self._loop.call_later(_DRAIN_S, self._application.give_up)

    def _run(self, begin: Callable[[], None]) -> None:
        asyncio.set_event_loop(self._loop)  # uvicorn asks for it in callbacks, too
        failure: BaseException | None = None
        try:
            self._loop.run_until_complete(self._serve(begin))
        except BaseException as e:
            failure = e
        finally:
            self._is_up.set()
            self._loop.run_until_complete(self._leave_nothing())
            self._loop.close()
            self._application.close()
        if not self._is_ending:
            self._on_failure(failure)

    async def _serve(self, begin: Callable[[], None]) -> None:
        begin()
        self._acceptor.start()
        self._is_up.set()
        sweep = asyncio.ensure_future(self._sweep())
        try:
            await self._server.serve(sockets=[])  # those that it is to serve are accepted here
        finally:
            sweep.cancel()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            close_late(self._server.server_state)

    async def _leave_nothing(self) -> None:
        """Close the port and the connections, however serving ended, and end all tasks."""
        self._acceptor.close()
        for each in list(self._server.server_state.connections):
            each.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _no_answer(why: str) -> ReceiverError:
    return ReceiverError(
        f"the HTTP server {why}",
        operation="call HTTP server",
        hint="no action is needed: the receiver restarts",
    )


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # Windows has none
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _config(application: Application) -> uvicorn.Config:
    config = uvicorn.Config(
        application,
        interface="asgi3",
        http=LimitedConnection,
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        server_header=False,
        headers=[("server", "penstock")],
        proxy_headers=False,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_CANCEL_S,
    )
    config.load()
    return config
