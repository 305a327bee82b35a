"""Records that clients POST, as a receiver."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import ConfigError, PenstockError, ReceiverError
from penstock.journal.schema import RecordFormat
from penstock.journal.schema_text import parse_schema
from penstock.receivers.http.bodies import BodyParser
from penstock.receivers.http.key_window import KeyWindow
from penstock.receivers.http.keys import KeptKey
from penstock.receivers.http.listening import listen
from penstock.receivers.http.settings import HttpSettings, read_token, tls_context
from penstock.receivers.receiver import Receiver

if TYPE_CHECKING:
    import ssl

    from penstock.receivers.http.application import Application
    from penstock.receivers.http.server import HttpServer

_log = logging.getLogger(__name__)


class HttpReceiver(Receiver):
    """Serves ``POST /``; answers 200, with the records' offsets, when they are durable.

    docs/http.md describes requests and answers. What may be lost: nothing that was answered with
    200. What may be stored twice: a request that the client repeats because no answer came, or
    503; with an ``Idempotency-Key`` it is stored once.

    While the journal cannot be written (disk full, say) the port stays open and answers 503.

    Args:
        host: name or address to bind to. One that others can reach needs a ``token_file``.
        port: TCP port; 0 is any free one, which the receiver's status tells (``listening_at``).
            Receivers that share a host need a port each.
        schema: ``"string"`` (the default), ``"binary"``, or columns: as text with Arrow's types,
            ``"page string not null, at timestamp[us, UTC]"``, as the path of a file (``.json``,
            ``.avsc``, ``.arrow``: docs/http.md), or as a ``pyarrow.Schema``.
        token_file: path of a file with the bearer token that requests must carry; read where the
            receiver runs, when it starts.
        tls_certificate: path of a PEM file with the certificate and its chain: serves HTTPS.
        tls_key: path of a PEM file with its key.
        max_body_bytes: of a body as it is sent; a larger one is refused with 413.
        max_expanded_bytes: of a gzip body when it is expanded.
        idempotency_window_ms: how long a key is kept; at most 200,000 keys are.
        finer_times: what is done with a time that has more digits of a second than its column:
            ``"cut"`` drops them, ``"refuse"`` answers 400.
        content_types: what bodies of a media type are, as in ``{"text/plain": "json"}``:
            ``"json"`` (an array, or one value), ``"ndjson"`` (a value a line), ``"lines"`` of text,
            or ``"body"`` (one record as it is). Other types are what docs/http.md says.

    Raises:
        ConfigError: an argument cannot work, or the extra ``http`` is not installed.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        schema: str | pa.Schema = "string",
        token_file: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        max_body_bytes: int = 16 << 20,
        max_expanded_bytes: int = 64 << 20,
        idempotency_window_ms: int = 3_600_000,
        finer_times: str = "cut",
        content_types: Mapping[str, str] | None = None,
    ) -> None:
        self.schema = parse_schema(schema)
        self._settings = HttpSettings(
            host=host,
            port=port,
            token_file=token_file,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            max_body_bytes=max_body_bytes,
            max_expanded_bytes=max_expanded_bytes,
            idempotency_window_ms=idempotency_window_ms,
            finer_times=finer_times,
            content_types=content_types,
        )
        RecordFormat(self.schema)  # raises where it is given, as the next line does
        self._parser()
        self._port = port
        self._server: HttpServer | None = None
        self._application: Application | None = None

    def __repr__(self) -> str:
        return f"HttpReceiver({self._settings.host}:{self._settings.port})"

    def checkStart(self) -> None:
        """Read the token file, certificate and key, and bind the port for a moment.

        Raises:
            ConfigError: one of them cannot be used.
        """
        self._secrets()
        self._listen().close()

    def onStart(self) -> None:
        """Bind the port and serve.

        Raises:
            ConfigError: the port cannot be bound; or the token file, or certificate and key, cannot
                be used.
            StorageError: the kept idempotency keys cannot be read.
        """
        # Here, so that the extra is needed only where it is used, and not to build a program.
        from penstock.receivers.http.application import Application
        from penstock.receivers.http.server import HttpServer

        settings = self._settings
        token, tls = self._secrets()
        application = Application(self, self._parser(), settings, token, self._delete)
        begin = partial(application.resume, *self._keys())
        listener = self._listen()
        self._port = listener.getsockname()[1]
        self._application = application
        self._server = HttpServer(application, listener, tls, self._on_failure)
        self._server.start(begin)
        scheme = "http" if tls is None else "https"
        self.listeningAt = f"{scheme}://{_in_url(settings.host)}:{self._port}"
        _log.info("HTTP receiver listens at %s", self.listeningAt)

    def onStop(self) -> None:
        """Accept nothing more, answer what is under way once it is durable, and end.

        Raises:
            ReceiverError: that took too long.
        """
        server, self._server, self.listeningAt = self._server, None, None
        if server is not None:
            server.stop()

    def onPause(self, error: PenstockError) -> bool:
        """Answer 503 from now on, also to requests that wait to become durable."""
        if self._server is None or self._application is None:
            return False
        self._server.call(self._application.pause())
        return True

    def onResume(self) -> None:
        """Take requests again.

        Raises:
            StorageError: the kept idempotency keys cannot be read.
            ReceiverError: the server has ended.
        """
        if self._server is None or self._application is None:
            raise ReceiverError("the HTTP server is not running", operation="resume receiver")
        window, keys = self._keys()
        self._server.call(_on_loop(partial(self._application.resume, window, keys)))

    def _parser(self) -> BodyParser:
        settings = self._settings
        return BodyParser(
            self.schema,
            cuts_times=settings.finer_times == "cut",
            given_types=settings.content_types,
        )

    def _keys(self) -> tuple[KeyWindow, list[KeptKey]]:
        window_ms = self._settings.idempotency_window_ms
        window = KeyWindow(window_ms, self.ownFiles(), self.lastPosition())
        return window, window.load()

    def _secrets(self) -> tuple[bytes | None, ssl.SSLContext | None]:
        """Return the token and what TLS needs, from their files."""
        settings = self._settings
        token = None if settings.token_file is None else read_token(settings.token_file)
        if settings.tls_certificate is None or settings.tls_key is None:
            return token, None
        return token, tls_context(settings.tls_certificate, settings.tls_key)

    def _listen(self) -> socket.socket:
        # A port that was free is kept over restarts in this process.
        try:
            return listen(self._settings.host, self._port)
        except OSError as e:
            is_taken = e.errno == errno.EADDRINUSE
            raise ConfigError(
                f"port {self._port} of {self._settings.host} "
                + ("is in use by another process" if is_taken else "cannot be bound"),
                operation="start receiver",
                hint=f"`ss -ltnp 'sport = :{self._port}'` names that process (to root, if it is "
                "another user's): end it, or choose another port; 0 selects any free port"
                if is_taken
                else "pass an address of this host, and a port that this user may bind",
            ) from e

    def _delete(self, names: tuple[str, ...]) -> None:
        for name in names:
            try:
                self.ownFiles().delete(name)
            except PenstockError:
                _log.warning("A file of idempotency keys could not be deleted", exc_info=True)

    def _on_failure(self, error: BaseException | None) -> None:
        self.restart("the HTTP server ended", error)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_server": None, "_application": None}


async def _on_loop(work: Callable[[], None]) -> None:
    work()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
