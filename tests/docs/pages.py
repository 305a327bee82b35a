"""Runs what pages show: their commands in a shell, their programs in this process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.streaming import StreamingContext
from tests.waiting import WAIT_S, eventually

ROOT = Path(__file__).parents[2]


def blocks(page: str, *languages: str) -> list[str]:
    """Return the fenced blocks of a page in these languages, in their order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def changed(code: str, diff: str) -> str:
    """Apply a page's diff: each of its lines with "-" stands once in the code."""
    old, new = (_lines(diff, sign) for sign in "-+")
    assert code.count(old) == 1, old
    return code.replace(old, new)


def shell(commands: list[str], folder: Path, within_s: float = 2 * WAIT_S) -> str:
    """Run commands as a reader types them; return what they print."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = ["set -m", "trap 'kill -9 -- $(jobs -p | sed s/^/-/) 2>/dev/null' EXIT", *commands]
    done = subprocess.run(
        ["timeout", f"{within_s:g}", "bash", "-c", "\n".join(script)],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    logs = "".join(log.read_text()[-1500:] for log in folder.rglob("*.log"))
    assert done.returncode != 124, f"{done.stdout}\n{done.stderr[-2000:]}\n{logs}"
    return done.stdout


class Program:
    """A page's program that runs in a thread, on the tests' Spark."""

    def __init__(self, code: str) -> None:
        self._code = compile(code, "page", "exec")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._raised: BaseException | None = None
        self._thread.start()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; raise what the program raised when it ends before."""
        assert eventually(lambda: condition() or not self._thread.is_alive())
        if not condition():
            self.end()
            raise AssertionError("the program ended")

    def end(self) -> None:
        """Wait for its end, and raise what it raised."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the program did not end"
        if self._raised is not None:
            raise self._raised

    def _run(self) -> None:
        try:
            exec(self._code, {"__name__": "__main__"})
        except BaseException as error:
            self._raised = error


@contextmanager
def program(code: str, sc: SparkContext) -> Iterator[Program]:
    """Run a page's program beside the block, and stop its streams and queries after it.

    A program makes a SparkContext, or takes the session that exists; here it gets the tests' own.
    """
    running = Program(re.sub(r"SparkContext\(.*?\)", "SparkContext.getOrCreate()", code))
    try:
        yield running
    finally:
        if (active := StreamingContext.getActive()) is not None:
            active.stop(stopSparkContext=False)
        for query in SparkSession(sc).streams.active:
            query.stop()
    running.end()


def _lines(diff: str, sign: str) -> str:
    return "".join(line[1:] + "\n" for line in diff.splitlines() if line.startswith(sign))
