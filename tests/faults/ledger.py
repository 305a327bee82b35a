"""A ledger of numbered lines: what was sent, what arrived, what is missing or too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import pyarrow.parquet as pq

from tests.background import background


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many lines were lost or came twice, and the first of them."""

    sent: int
    lost: int
    duplicated: int
    unexpected: int
    first_lost: tuple[int, ...]
    first_duplicated: tuple[int, ...]

    @property
    def ok(self) -> bool:
        return self.sent > 0 and not (self.lost or self.duplicated or self.unexpected)


class LogWriter:
    """Appends numbered lines to log files, rotating by rename, until it is told to end."""

    def __init__(self, folder: Path, lines_per_file: int = 2000, prefix: str = "line ") -> None:
        self._folder = folder
        self._prefix = prefix
        self._lines_per_file = lines_per_file
        self.sent = 0

    @contextmanager
    def running(self, lines_a_burst: int = 20, pause_s: float = 0.01) -> Iterator[None]:
        with background(partial(self._write, lines_a_burst, pause_s)):
            yield

    def lines(self) -> Iterator[str]:
        """Yield what was sent."""
        return (f"{self._prefix}{n}" for n in range(self.sent))

    def _write(self, lines_a_burst: int, pause_s: float, end: Event) -> None:
        rotation = 0
        while not end.is_set():
            with (self._folder / "app.log").open("ab") as log:
                for _ in range(self._lines_per_file // lines_a_burst):
                    numbers = range(self.sent, self.sent + lines_a_burst)
                    log.write("".join(f"{self._prefix}{n}\n" for n in numbers).encode())
                    log.flush()
                    self.sent += lines_a_burst
                    if end.wait(pause_s):
                        return
            rotation += 1
            (self._folder / "app.log").rename(self._folder / f"app.log.{rotation}")


def judge(sent: int, sink: Path) -> Verdict:
    """Compare the sink with the lines ``line 0`` to ``line sent-1``."""
    files = sorted(sink.glob("batch=*.parquet"))
    values = (v for f in files for v in pq.ParquetFile(f).read()["value"].to_pylist())
    seen = Counter(values)
    expected = {f"line {n}": n for n in range(sent)}
    lost = sorted(n for line, n in expected.items() if line not in seen)
    twice = sorted(expected[line] for line, times in seen.items() if times > 1 and line in expected)
    unexpected = sum(line not in expected for line in seen)
    return Verdict(sent, len(lost), len(twice), unexpected, tuple(lost[:5]), tuple(twice[:5]))
