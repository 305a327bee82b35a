"""A real PostgreSQL of the tests' own: Debian's server, which listens on a socket of its folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.waiting import eventually

__all__ = ["Server", "needs_postgres"]

_DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
_PATH = os.pathsep.join([*map(str, reversed(_DEBIAN)), os.environ.get("PATH", "")])
_INITDB, _POSTGRES = shutil.which("initdb", path=_PATH), shutil.which("postgres", path=_PATH)

needs_postgres = pytest.mark.skipif(
    _INITDB is None or _POSTGRES is None or find_spec("psycopg") is None,
    reason="PostgreSQL: NOT PROVED: its server, or psycopg, is not installed",
)


class Server:
    """A server; it refuses to be root's, so root runs it as nobody."""

    def __init__(self) -> None:
        # Not in pytest's folder, which only this user can enter.
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self.url = f"postgresql:///postgres?host={self.folder}&user=penstock"
        self._data = str(self.folder / "data")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Make its files if it has none, and start it; return when it takes connections."""
        assert _INITDB is not None
        assert _POSTGRES is not None
        if not os.path.exists(self._data):
            options = [
                "--auth=trust",
                "--username=penstock",
                "--no-sync",
                "--no-locale",
                "-E",
                "UTF8",
            ]
            self._run([_INITDB, "-D", self._data, *options]).wait()
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "shared_buffers": "16MB",
            "autovacuum": "off",
        }
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._run([_POSTGRES, "-D", self._data, *given])
        assert eventually(self._answers), self.log.read_text()

    @property
    def log(self) -> Path:
        """What the server writes."""
        return self.folder / "log"

    def kill(self) -> None:
        """End it without an orderly stop: it recovers when it starts again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def stop(self) -> None:
        """End it, and delete its files."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: list[str]) -> subprocess.Popen[bytes]:
        group = None if self._user is None else "nogroup"
        groups = None if self._user is None else []
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._user,
                group=group,
                extra_groups=groups,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url):
                return True
        except psycopg.OperationalError:
            return False
