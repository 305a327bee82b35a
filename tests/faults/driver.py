"""Runs a program as a driver process of its own, and ends it in every way."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyspark

from tests.waiting import WAIT_S


def spark_environment() -> dict[str, str]:
    """Return the environment of a driver: local-cluster starts executors from SPARK_HOME."""
    return {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)}


class Driver:
    """One driver process. Its standard output's lines are what it reports."""

    def __init__(self, program: Path, args: Sequence[str], errors: Path) -> None:
        self._command = [sys.executable, str(program), *args]
        self._errors = errors
        self._start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.end()

    def restart(self) -> None:
        """SIGKILL all of its session, and start it again."""
        self.end()
        self._start()

    def wait_line(self, prefix: str, timeout_s: float = WAIT_S) -> str:
        """Wait for a reported line that begins so; raise when the driver ends before it."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                raise TimeoutError(f"no {prefix!r} in {timeout_s} s: {self._tail()}") from None
            if line is None:
                raise RuntimeError(f"the driver ended: {self._tail()}")
            if line.startswith(prefix):
                return line.rstrip("\n")

    def run_until(self, condition: Callable[[], bool], more: int = 0) -> None:
        """Let batches be committed until a condition holds or time is up, and so many more."""
        deadline_s = time.monotonic() + WAIT_S
        while not condition() and time.monotonic() < deadline_s:
            self._forget_lines()  # a look at all files takes longer than a batch
            self.wait_batches(1)
        self.wait_batches(more)

    def wait_batches(self, count: int) -> None:
        """Wait until so many more batches are committed, of a program that prints which."""
        for _ in range(count):
            self.wait_line("committed")

    def wait_records(self, count: int) -> None:
        """Wait until more batches are committed, with so many records in all."""
        while count > 0:
            count -= int(self.wait_line("committed").split()[2])

    def kill(self) -> None:
        """SIGKILL the driver process alone; its JVM and workers find out by themselves."""
        self.process.kill()
        self.process.wait()

    def finish(self, timeout_s: float = WAIT_S) -> None:
        """End its standard input, and wait until it ends by itself."""
        self._end_input()
        assert self.process.wait(timeout_s) == 0, self._tail()

    def log(self) -> str:
        """Return what it wrote to its standard error, and what others did that share the file."""
        return self._errors.read_text(errors="replace")

    def end(self) -> None:
        """Make sure that nothing of its session is left."""
        self.kill()
        self._end_input()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _forget_lines(self) -> None:
        """Forget what it reported up to now, but not that it ended."""
        for _ in range(self._lines.qsize()):
            line = self._lines.get()
            if line is None:
                self._lines.put(None)

    def _end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _start(self) -> None:
        with self._errors.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=spark_environment(),
                start_new_session=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(self.process, self._lines), daemon=True).start()

    def _tail(self) -> str:
        return self.log()[-3000:]


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            lines.put(line)
    lines.put(None)
