"""A process of the demo: started apart from the terminal, read from, killed, and cleaned up after.

Spark's driver is a small family: the Python program, its JVM, and the Python workers, which put
themselves into process groups of their own. ``kill`` ends the program and the JVM with one signal,
as the loss of a machine would; the workers notice it by themselves, as those on other machines do.
``end_family`` sees to it that none is left.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.cli.demo.messages import parse

__all__ = ["Child", "end_family"]

_FAMILY_END_S = 10.0


class Child:
    """Runs ``python -m module arguments``.

    Args:
        module: the program.
        arguments: its command line.
        environ: its environment.
        log: the file that its standard error, and other text that it prints, is appended to.
        messages: where its messages go (see ``messages``), in order.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        messages: queue.SimpleQueue[dict[str, Any]],
    ) -> None:
        self.log = log
        self._messages = messages
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's, too."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        return self._process.poll()

    def close_input(self) -> None:
        """End its standard input: for the job, the order to stop."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end and its last message; return its exit status, None when it is late."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
            self._reader.join(timeout_s)
        return self._process.poll()

    def kill(self) -> None:
        """End its process group by SIGKILL; all its messages are in the queue when this returns."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()

    def close(self) -> None:
        """Kill it if it runs, and close the pipes."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with open(self.log, "a", encoding="utf-8") as log:
            for line in self._process.stdout:
                text = line.decode(errors="replace")
                if (message := parse(text)) is not None:
                    self._messages.put(message)
                else:
                    log.write(text)


def end_family(name: str, value: str) -> None:
    """End every process that has this variable in its environment, which none else may have.

    The variable finds also those that lost their parent, and never one that took a dead one's id.
    Does nothing where the platform has no /proc; there workers end by themselves a moment later.
    """
    entry = f"{name}={value}".encode()
    deadline_s = time.monotonic() + _FAMILY_END_S
    while (left := _with_environment(entry)) and time.monotonic() < deadline_s:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _with_environment(entry: bytes) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is another user's
            # A zombie's is empty.
            if entry in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found
