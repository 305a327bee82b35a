"""Runs a program as a driver process of its own, and ends it in every way."""

from __future__ import annotations

import faulthandler
import os
import queue
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pyspark

from tests.forked import Forked
from tests.waiting import WAIT_S, eventually


class Driver:
    """One driver process. Its standard output's lines are what it reports.

    It runs a program, which is a file, as Python does; but the process has imported already what
    programs need, and the file's folder is not on ``sys.path``. Its workers' Pythons are forks,
    too (``tests.interpreter``); with ``own_pythons`` Spark starts them, in the driver's session and
    tree of processes, where a test can find and kill them.
    """

    def __init__(
        self, program: Path, args: Sequence[str], errors: Path, *, own_pythons: bool = False
    ) -> None:
        self._command = [str(program), *args]
        self._errors = errors
        self._own_pythons = own_pythons
        self._start()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.end()

    def restart(self) -> None:
        """SIGKILL all of its session, and start it again."""
        self.end()
        self._start()

    def begin(self) -> None:
        """Tell a program to begin that has started, and waits for a line."""
        self.tell("")

    def wait_line(self, prefix: str, timeout_s: float = WAIT_S) -> str:
        """Wait for a reported line that begins so; raise when the driver ends before it."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                raise TimeoutError(f"no {prefix!r} in {timeout_s} s: {self.stacks()}") from None
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

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        print(line, file=self._input, flush=True)

    def finish(self) -> None:
        """End its standard input, and wait until it ends by itself."""
        self._input.close()
        assert self.process.wait() == 0, self._tail()

    def log(self) -> str:
        """Return what it wrote to its standard error, and what others did that share the file."""
        return self._errors.read_text(errors="replace")

    def stacks(self) -> str:
        """Return the end of its log, with where its threads are now: for a failed test."""
        before = len(self.log())
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR2)
        eventually(lambda: "most recent call first" in self.log()[before:], 10)
        return self.log()[max(before - 3000, 0) :]

    def end(self) -> None:
        """Make sure that nothing of its session is left."""
        self.kill()
        with suppress(BrokenPipeError):  # of a line that it did not read
            self._input.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _forget_lines(self) -> None:
        """Forget what it reported up to now, but not that it ended."""
        for _ in range(self._lines.qsize()):
            line = self._lines.get()
            if line is None:
                self._lines.put(None)

    def _start(self) -> None:
        (its_input, ours), (output, its_output) = os.pipe(), os.pipe()
        self._input = os.fdopen(ours, "w")
        with (
            Connection(its_input, writable=False) as a,
            Connection(its_output, readable=False) as b,
        ):
            files = a, b, str(self._errors)
            self.process = Forked(_run, *files, dict(os.environ), self._command, self._own_pythons)
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_read, args=(output, self._lines), daemon=True).start()

    def _tail(self) -> str:
        return self.log()[-3000:]


class Relay:
    """One driver process after the other: the next one can start before the last one has ended.

    Most of a start is that of Spark, which is their own; the program waits for a line then
    (``Driver.begin``).
    """

    def __init__(self, program: Path, args: Sequence[str], errors: Path) -> None:
        self._make = partial(Driver, program, args, errors, own_pythons=True)
        self._driver: Driver | None = None
        self._next: Driver | None = None

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *ignored: object) -> None:
        for driver in (self._driver, self._next):
            if driver is not None:
                driver.end()

    @property
    def driver(self) -> Driver:
        """The program; when it has ended, the next one."""
        if self._driver is None or self._driver.process.poll() is not None:
            if self._driver is not None:
                self._driver.end()
            self._driver, self._next = self._next or self._make(), None
            self._driver.begin()
        return self._driver

    def prepare(self) -> None:
        """Start the next program, which waits."""
        self._next = self._next or self._make()


def _read(output: int, lines: queue.Queue[str | None]) -> None:
    with os.fdopen(output) as file:
        for line in file:
            lines.put(line)
    lines.put(None)


def _run(
    standard_input: Connection,
    output: Connection,
    errors: str,
    environment: dict[str, str],
    command: list[str],
    own_pythons: bool,
) -> None:
    """Be the driver: the leader of a session, which runs the program as Python would."""
    os.setsid()
    with standard_input, output, open(errors, "ab") as log:
        for number, file in enumerate((standard_input, output, log)):
            os.dup2(file.fileno(), number)
    faulthandler.register(signal.SIGUSR2)  # see ``Driver.stacks``
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.argv = command
    os.environ.clear()  # the server's, which may be older
    os.environ.update(environment)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # of local-cluster's executors
    if own_pythons:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    runpy.run_path(command[0], run_name="__main__")
