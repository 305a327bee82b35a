"""Serves /metrics over HTTP: loopback by default, with a bearer token for other addresses.

It is for a scraper: threads of their own, one request each, that end with it. Everything but
``GET /metrics`` is refused. Without a token only requests to an address, or to localhost, are
answered: a page of a stranger's domain whose name was made to point here names that domain.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
import socketserver
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from penstock.conf import MetricsSettings
from penstock.errors import ConfigError
from penstock.metrics.exporter import Exporter
from penstock.receivers.http.settings import is_loopback, read_token

_log = logging.getLogger(__name__)

_REQUEST_S = 10.0
_MOST = 32
"""Connections at a time: clients that send nothing hold no more threads of a driver."""
_POLL_S = 0.2
"""How long a close takes at most."""


class _Handler(BaseHTTPRequestHandler):
    exporter: ClassVar[Exporter]
    token: ClassVar[bytes | None]
    timeout = _REQUEST_S
    server_version = "penstock"
    sys_version = ""

    def do_GET(self) -> None:
        token = self.token
        given = self.headers.get("Authorization", "").encode()
        if token is not None and not hmac.compare_digest(given, b"Bearer " + token):
            self._answer(HTTPStatus.UNAUTHORIZED, "text/plain", b"a bearer token is required\n")
        elif token is None and not _is_address(self.headers.get("Host", "")):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"use the address\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"see /metrics\n")
        else:
            content_type, body = self.exporter.render(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, content_type, body)

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""


def _is_address(host: str) -> bool:
    """Whether a Host header names localhost or an IP address."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._open: dict[object, None] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; the oldest of too many connections gives way to the new one."""
        with self._lock:
            self._open[request] = None
            oldest: Any = next(iter(self._open)) if len(self._open) > _MOST else None
            if oldest is not None:
                del self._open[oldest]
                with suppress(OSError):  # its client has gone
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def server_bind(self) -> None:
        """Bind, without asking for the host's name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log no broken connections: a scraper that gave up is not this program's error."""


class MetricsServer:
    """A server of one exporter's metrics, from its creation to ``close``.

    Args:
        exporter: what to serve.
        host: address to bind to.
        port: TCP port; 0 takes any free one.
        token_file: file with the bearer token that requests must carry.

    Raises:
        ConfigError: the port is taken, or others can reach the address and there is no token.
    """

    def __init__(
        self, exporter: Exporter, host: str, port: int, token_file: str | None = None
    ) -> None:
        if token_file is None and not is_loopback(host):
            raise ConfigError(
                f"metrics at {host} can be read by others, and there is no token",
                operation="serve metrics",
                hint="give a file with a bearer token, which Prometheus sends "
                "(authorization: credentials_file), or the host 127.0.0.1",
            )
        token = None if token_file is None else read_token(token_file)
        handler = type("Handler", (_Handler,), {"exporter": exporter, "token": token})
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        kind = type("Server", (_Server,), {"address_family": family})
        try:
            self._server: ThreadingHTTPServer = kind((host, port), handler)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {host}:{port}",
                operation="serve metrics",
                hint="choose another port; 0 takes any free one",
            ) from error
        self.port: int = self._server.server_address[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_POLL_S,),
            name="penstock-metrics",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def exporter_for(settings: MetricsSettings) -> Exporter | None:
    """Return what gathers the metrics of a process; None if no port is set, nor the client there.

    Raises:
        ConfigError: a port is set, and prometheus-client is not installed.
    """
    try:
        return Exporter()
    except ConfigError:
        if settings.port is not None:
            raise
        return None


def serve_metrics(settings: MetricsSettings, exporter: Exporter | None) -> MetricsServer | None:
    """Serve metrics where the settings say; None where they name no port.

    Raises:
        ConfigError: see MetricsServer.
    """
    if settings.port is None or exporter is None:
        return None
    server = MetricsServer(exporter, settings.host, settings.port, settings.token_file)
    _log.info("Metrics are served at %s", server.url)
    return server
