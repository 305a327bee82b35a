"""The demo's feeder: a process that copies text into growing log files, at a steady pace.

It writes as programs write logs: by appending, in pieces that end anywhere in a line, with one
rotation by rename, and moving on to other files now and then. What is on disk at the end is the
truth that the demo's result is compared with.

The rotation waits until the file is known to be followed: as with ``tail -F``, what was rotated
away before anyone looked is not part of the stream.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from penstock.cli.demo.messages import say
from penstock.cli.demo.source_text import SourceText, source_files

__all__ = ["STAGES", "Feeder", "main"]

STAGES = ("app.log", "app.log", "web.log", "worker.log")
"""The file that each equal part of the text goes to. A name that comes again is rotated first:
``app.log`` becomes ``app.log.1``, and a new ``app.log`` begins."""

_STEP_S = 0.05
_REPORT_S = 0.25


class Feeder:
    """Fills a folder with log files.

    Args:
        folder: where the files go; it exists and is empty.
        text: what they are filled with.
        total_bytes: how much to write; the last line of each stage is written whole.
        seconds: how long to take for it, without the wait for the follower.
        await_follower: called once, before the rotation; returns when ``app.log`` is followed.
        report: told ``("fed", lines=, bytes=, file=)`` now and then, ``("rotated", file=, to=)``,
            and ``("fed_all", lines=, bytes=)`` at the end, when all is written.
    """

    def __init__(
        self,
        folder: Path,
        text: SourceText,
        total_bytes: int,
        seconds: float,
        await_follower: Callable[[], object],
        report: Callable[..., None],
    ) -> None:
        self._folder = folder
        self._text = text
        self._total_bytes = total_bytes
        self._seconds = seconds
        self._await_follower = await_follower
        self._report = report
        self._lines = 0
        self._bytes = 0
        self._started_s = 0.0
        self._reported_s = 0.0

    def run(self) -> None:
        """Write it all."""
        self._started_s = time.monotonic()
        for number, name in enumerate(STAGES, start=1):
            path = self._folder / name
            if path.exists():
                self._rotate(path)
            self._grow(path, self._total_bytes * number // len(STAGES))
        self._report("fed_all", lines=self._lines, bytes=self._bytes)

    def _rotate(self, path: Path) -> None:
        waits_s = time.monotonic()
        self._await_follower()
        self._started_s += time.monotonic() - waits_s
        rotated = path.with_name(f"{path.name}.1")
        path.rename(rotated)
        self._report("rotated", file=path.name, to=rotated.name)

    def _grow(self, path: Path, until_bytes: int) -> None:
        """Append to a file until that much is written in all, to the end of a line."""
        with open(path, "xb", buffering=0) as log:
            while self._bytes < until_bytes:
                due = min(self._due_bytes(), until_bytes) - self._bytes
                if due <= 0:
                    time.sleep(_STEP_S)
                    continue
                self._append(log.fileno(), self._text.read(due))
                self._report_now_and_then(path.name)
            self._append(log.fileno(), self._text.read_to_line_end())

    def _due_bytes(self) -> int:
        elapsed_s = time.monotonic() - self._started_s
        share = elapsed_s / self._seconds if self._seconds > 0 else 1.0
        return int(min(share, 1.0) * self._total_bytes)

    def _append(self, descriptor: int, piece: bytes) -> None:
        self._lines += piece.count(b"\n")
        self._bytes += len(piece)
        while piece:
            piece = piece[os.write(descriptor, piece) :]

    def _report_now_and_then(self, name: str) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            self._report("fed", lines=self._lines, bytes=self._bytes, file=name)


def main() -> None:
    """Feed as the command line says; the end of standard input allows the rotation.

    Ends with BrokenPipeError when the reader is gone.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    text = SourceText(source_files())
    Feeder(options.folder, text, options.bytes, options.seconds, sys.stdin.read, say).run()


if __name__ == "__main__":
    main()
