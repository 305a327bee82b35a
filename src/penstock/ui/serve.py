"""Starts the dashboard in a process: a thread with uvicorn, from its start to ``close``.

Without requests it waits for connections, reads nothing and holds nothing.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.conf import MetricsSettings, UiSettings
from penstock.errors import ConfigError, PenstockError
from penstock.metrics import Exporter, exporter_for
from penstock.receivers.http.listening import listen
from penstock.receivers.http.settings import is_loopback, read_token
from penstock.status import SharedStatus
from penstock.ui.access import Access

if TYPE_CHECKING:
    import uvicorn

_log = logging.getLogger(__name__)
DEFAULT_PORT = UiSettings().port
_START_S = 10.0
_TRIES_OF_DRIVERS = 16
"""As many as Spark's own UI tries (spark.port.maxRetries)."""
_STOP_S = 3


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """Where the dashboard is served.

    Raises:
        ConfigError: others can reach the address, and there is no token.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 takes any free one."""
    token_file: str | None = None
    """A file with the token that requests must carry, and that permits rate changes."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which a proxy serves it."""
    tries: int = 1
    """How many ports to try, one after the other, as Spark does for its own UI."""

    def __post_init__(self) -> None:
        if self.token_file is None and not is_loopback(self.host):
            raise ConfigError(
                f"a dashboard at {self.host} can be read by others, and there is no token",
                operation="serve dashboard",
                hint="give a file with a token (`openssl rand -hex 32 > FILE`), or the host "
                "127.0.0.1",
            )


class Dashboard:
    """A dashboard that is served. Close it."""

    def __init__(
        self,
        shared: SharedStatus,
        server: uvicorn.Server,
        thread: threading.Thread,
        listener: socket.socket,
        host: str,
    ) -> None:
        self._shared = shared
        self._server = server
        self._thread = thread
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/"

    def add(self, path: str) -> None:
        """Show one more location."""
        self._shared.add(path)

    def close(self) -> None:
        """Stop serving; requests that are under way have a few seconds."""
        self._server.should_exit = True
        self._thread.join(_STOP_S + 2)
        self._listener.close()


def start_dashboard(
    paths: Sequence[str], settings: DashboardSettings, exporter: Exporter | None = None
) -> Dashboard:
    """Serve the pages about some locations from a thread of this process, and metrics beside them.

    Args:
        paths: paths or URLs of the locations.
        settings: where.
        exporter: the metrics; of these locations alone if it is not given.

    Raises:
        ConfigError: the extra ``ui`` is not installed, the port is taken, or the token file cannot
            be read.
    """
    token = None if settings.token_file is None else read_token(settings.token_file)
    access = Access(token, tuple(name.lower() for name in settings.allowed_hosts))
    try:
        import uvicorn

        from penstock.ui.app import make_app
        from penstock.ui.connections import BoundedProtocol
    except ImportError as error:
        raise ConfigError(
            f"the dashboard needs a package that is not installed: {error.name}",
            operation="serve dashboard",
            hint="install the extra: pip install 'penstock-spark[ui]'",
        ) from error
    listener, shared = _listen(settings), SharedStatus(paths)
    if exporter is None and (exporter := exporter_for(MetricsSettings())) is not None:
        exporter.add_locations(shared)
    config = uvicorn.Config(
        make_app(shared, access, exporter),
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_S,
        limit_concurrency=100,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="penstock-dashboard", daemon=True
    )
    thread.start()
    _wait_until_started(server, thread)
    found = Dashboard(shared, server, thread, listener, settings.host)
    _log.info("The dashboard is at %s", found.url)
    return found


def dashboard_of_driver(
    settings: UiSettings, paths: Sequence[str] = (), exporter: Exporter | None = None
) -> Dashboard | None:
    """Serve the dashboard of a program; None where it cannot be served, which is logged.

    A program does not fail for its dashboard.
    """
    try:
        own = DashboardSettings(
            settings.host, settings.port, settings.token_file, tries=_TRIES_OF_DRIVERS
        )
        return start_dashboard(paths, own, exporter)
    except PenstockError as error:
        _log.warning("There is no dashboard: %s", error)
        return None


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    """Wait for the event loop; the socket already accepts, so no one is refused meanwhile."""
    until_s = time.monotonic() + _START_S
    while not server.started and thread.is_alive() and time.monotonic() < until_s:
        time.sleep(0.005)


def _listen(settings: DashboardSettings) -> socket.socket:
    tried = range(settings.port, settings.port + (settings.tries if settings.port else 1))
    for port in tried:
        try:
            return listen(settings.host, port)
        except OSError as e:
            error = e
    raise ConfigError(
        f"the dashboard cannot be served at {settings.host}:{settings.port}",
        operation="serve dashboard",
        hint="choose another port; 0 takes any free one",
    ) from error
