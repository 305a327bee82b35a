"""Processes of a benchmark: fresh ones for each run, and the server that sends text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

__all__ = ["LoadServer", "fresh_process", "http_server", "load_server", "text_server"]

_BENCH = Path(__file__).parent.parent
_STOP_S = 10.0


def fresh_process(script: str, *arguments: object, timeout_s: float) -> Any:
    """Run ``bench/<script>`` in a process of its own; return the JSON of its last line.

    What it leaves running (a JVM, Python workers) is killed, and its temporary files are removed.

    Raises:
        RuntimeError: it failed, or took longer than ``timeout_s``; carries the end of its output.
    """
    command = [sys.executable, str(_BENCH / script), *map(str, arguments)]
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        status = _run(command, folder, output, errors, timeout_s)
        if status != 0:
            what = "took too long" if status is None else f"ended with status {status}"
            raise RuntimeError(f"{' '.join(command)} {what}:\n{errors.read_text()[-4000:]}")
        return json.loads(output.read_text().splitlines()[-1])


def _run(
    command: list[str], folder: str, output: Path, errors: Path, timeout_s: float
) -> int | None:
    """Return the exit status, None when it took too long. Nothing of it runs any more then."""
    environment = {**os.environ, "TMPDIR": folder, "SPARK_LOCAL_DIRS": folder}
    with output.open("w") as out, errors.open("w") as err:
        child = subprocess.Popen(
            command, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill_session(child.pid)
            child.wait()


def _kill_session(session: int) -> None:
    """Kill all processes of a session that this process began, and wait until they are gone."""
    while pids := [pid for pid in _running() if _session_of(pid) == session]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _running() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session_of(pid: int) -> int | None:
    """Return the session of a process, None for one that has ended."""
    try:
        state, _, _, session, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(session)


class TextServer:
    """A running server; see ``text_server``."""

    def __init__(self, printed: IO[str]) -> None:
        self._printed = printed
        self.port = int(printed.readline())

    def burst_began_s(self) -> float:
        """Wait until the first client's paced time is over; return when that was (monotonic)."""
        return float(self._printed.readline())


@contextmanager
def text_server(
    lines_per_s: int, paced_s: float, text: str = "log", burst: int = 0
) -> Iterator[TextServer]:
    """Run a TCP server on loopback that sends text to whoever connects.

    The text is ``"log"`` lines or lines of ``"words"``. A client gets ``lines_per_s`` for
    ``paced_s`` seconds, and then as many as it reads, at most ``burst`` (whole texts of 40,000)
    unless that is 0. The server ends with the block, or with this process, whatever ends that.
    """
    with _server(
        "harness.text_server", text, str(lines_per_s), str(paced_s), str(burst)
    ) as printed:
        yield TextServer(printed)


class LoadServer:
    """A running ``load_server``."""

    def __init__(self, printed: IO[str]) -> None:
        self._printed = printed
        self.port = int(printed.readline())

    def connected_ms(self) -> int:
        """Return when its client connected, milliseconds since the epoch."""
        return int(self._printed.readline())


@contextmanager
def load_server(backlog: int, steps: Sequence[tuple[float, float]]) -> Iterator[LoadServer]:
    """Run a source under a scripted load (harness.load_server); it ends with the block.

    Args:
        backlog: lines that are there at first.
        steps: (from which second on, lines per second), ascending from 0.
    """
    script = [f"{at_s}:{rate}" for at_s, rate in steps]
    with _server("harness.load_server", str(backlog), *script) as printed:
        yield LoadServer(printed)


@contextmanager
def http_server(kind: str, *arguments: str) -> Iterator[int]:
    """Run an HTTP server (harness.http_server) of a kind; yields its port. Ends with the block."""
    with _server("harness.http_server", kind, *arguments) as printed:
        yield int(printed.readline())


@contextmanager
def _server(module: str, *arguments: str) -> Iterator[IO[str]]:
    """Run a module of ``bench`` as a process; yield its output. It ends when its input does."""
    server = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=_BENCH,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield server.stdout
    finally:
        server.stdin.close()
        server.wait(_STOP_S)
        server.stdout.close()
