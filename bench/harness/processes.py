"""Processes of a benchmark: fresh ones for each run, and the server that sends text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["fresh_process", "text_server"]

_BENCH = Path(__file__).parent.parent
_STOP_S = 10.0


def fresh_process(script: str, *arguments: object, timeout_s: float) -> Any:
    """Run ``bench/<script>`` in a process of its own; return the JSON of its last line.

    What it leaves running (a JVM) is killed.

    Raises:
        RuntimeError: it failed, or took longer than ``timeout_s``; carries the end of its output.
    """
    command = [sys.executable, str(_BENCH / script), *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True)
        try:
            status: int | None = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        errors.seek(0)
        if status != 0:
            what = "took too long" if status is None else f"ended with status {status}"
            raise RuntimeError(f"{' '.join(command)} {what}:\n{errors.read()[-4000:]}")
        return json.loads(output.read().splitlines()[-1])


@contextmanager
def text_server(lines_per_s: int, paced_s: float) -> Iterator[int]:
    """Run a TCP server on loopback that sends log lines to whoever connects; yield its port.

    A client gets ``lines_per_s`` for ``paced_s`` seconds, and then as many as it reads. The server
    ends with the block, or with this process, whatever ends that.
    """
    command = [sys.executable, "-m", "harness.text_server", str(lines_per_s), str(paced_s)]
    server = subprocess.Popen(
        command, cwd=_BENCH, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.stdin.close()  # it ends when its input does
        server.wait(_STOP_S)
        server.stdout.close()
