"""Processes of a benchmark: fresh ones for each run, and the server that sends text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["fresh_process", "text_server"]

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

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._output = process.stdout
        self.port = int(self._output.readline())

    def burst_began_s(self) -> float:
        """Wait until the first client's paced time is over; return when that was (monotonic)."""
        return float(self._output.readline())


@contextmanager
def text_server(
    lines_per_s: int, paced_s: float, text: str = "log", burst: int = 0
) -> Iterator[TextServer]:
    """Run a TCP server on loopback that sends text to whoever connects.

    The text is ``"log"`` lines or lines of ``"words"``. A client gets ``lines_per_s`` for
    ``paced_s`` seconds, and then as many as it reads, at most ``burst`` (whole texts of 40,000)
    unless that is 0. The server ends with the block, or with this process, whatever ends that.
    """
    command = [sys.executable, "-m", "harness.text_server"]
    command += [text, str(lines_per_s), str(paced_s), str(burst)]
    server = subprocess.Popen(
        command, cwd=_BENCH, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield TextServer(server)
    finally:
        server.stdin.close()  # it ends when its input does
        server.wait(_STOP_S)
        server.stdout.close()
