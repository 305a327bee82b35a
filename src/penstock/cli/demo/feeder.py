"""The demo's feeder: copies the source text that comes with Python into growing log files.

It writes as programs write logs: by appending, in pieces that end anywhere in a line, with one
rotation by rename, and moves on to other files now and then. What is on disk at the end is the
truth that the demo's result is compared with.
"""

from __future__ import annotations

import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import ConfigError

STAGES = ("app.log", "app.log", "web.log", "worker.log")
"""The file that each equal part of the text goes to. A name that comes again is rotated first:
``app.log`` becomes ``app.log.1``, and a new ``app.log`` begins."""

_STEP_S = 0.05


class Feeder(threading.Thread):
    """Fills a folder with log files, in a thread of its own.

    The rotation waits until ``is_followed`` is set: as with ``tail -F``, what was rotated away
    before it was followed is not part of the stream.

    Args:
        folder: where the files go; it exists and is empty.
        texts: what they are filled with; each part ends with a line.
        total_bytes: how much to write at least; the last line of each file is written whole.
        seconds: how long to take for it, without the wait for the follower.
    """

    def __init__(
        self, folder: Path, texts: Iterator[bytes], total_bytes: int, seconds: float
    ) -> None:
        super().__init__(name="penstock-demo-feeder", daemon=True)
        self.is_followed = threading.Event()
        self.is_stopped = threading.Event()
        self.lines = 0
        self.bytes = 0
        self.is_done = False
        self._folder = folder
        self._texts = texts
        self._text = memoryview(b"")
        self._is_within_line = False
        self._total_bytes = total_bytes
        self._seconds = seconds

    def run(self) -> None:
        """Write it all, unless it is stopped."""
        started_s = time.monotonic()
        for number, name in enumerate(STAGES, start=1):
            path = self._folder / name
            if path.exists():
                waits_s = time.monotonic()
                self.is_followed.wait()
                started_s += time.monotonic() - waits_s
                path.rename(path.with_name(f"{name}.1"))
            self._grow(path, self._total_bytes * number // len(STAGES), started_s)
        self.is_done = not self.is_stopped.is_set()

    def stop(self) -> None:
        """End it, wherever it is."""
        self.is_stopped.set()
        self.is_followed.set()
        self.join()

    def _grow(self, path: Path, until_bytes: int, started_s: float) -> None:
        """Append to a file until that much is written in all, to the end of a line."""
        with open(path, "xb", buffering=0) as log:
            while self.bytes < until_bytes and not self.is_stopped.wait(_STEP_S):
                share = (time.monotonic() - started_s) / max(self._seconds, 1e-9)
                due_bytes = min(int(share * self._total_bytes), until_bytes)
                while self.bytes < due_bytes:
                    log.write(self._next(due_bytes - self.bytes))
            if self._is_within_line:
                log.write(self._next(bytes(self._text).index(b"\n") + 1))

    def _next(self, size: int) -> bytes:
        if size and not self._text:
            self._text = memoryview(next(self._texts))
        piece, self._text = bytes(self._text[:size]), self._text[size:]
        self.lines += piece.count(b"\n")
        self.bytes += len(piece)
        self._is_within_line = not piece.endswith(b"\n")
        return piece


def source_files() -> list[Path]:
    """Return the sources of the standard library and of the installed packages, in stable order."""
    paths = sysconfig.get_paths()
    folders = dict.fromkeys(Path(paths[key]).resolve() for key in ("stdlib", "purelib", "platlib"))
    # Outside a virtual environment the packages lie within the standard library's folder.
    return list(dict.fromkeys(file for each in folders for file in sorted(each.rglob("*.py"))))


def endless_text(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield the text of files one after the other, and again from the first when all are read.

    Files that are empty, not UTF-8 or not readable are left out. A file that does not end in a line
    end is given one.

    Raises:
        ConfigError: there is no text in any of the files.
    """
    while True:
        texts = (text for file in files if (text := _text_of(file)))
        first = next(texts, None)
        if first is None:
            raise ConfigError(
                f"none of {len(files)} source files has text",
                operation="feed text",
                hint="the demo needs a Python whose standard library is installed as .py files",
            )
        yield first
        yield from texts


def _text_of(file: Path) -> bytes:
    try:
        text = file.read_bytes()
        text.decode()
    except (OSError, UnicodeDecodeError):
        return b""
    return text if not text or text.endswith(b"\n") else text + b"\n"
