"""Counts the words of a socket's lines, and notes when all were counted.

Usage: _dstream_words.py ours|peer PORT LINES TIMEOUT_S. The last line of output is JSON: when
(monotonic seconds) the counts of all batches came to LINES.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from operator import add
from typing import Any

from harness.lines import WORDS_PER_LINE
from harness.socket_programs import penstock_program, pyspark_program

_ENGINES = {"ours": penstock_program, "peer": pyspark_program}


class _Total:
    """The lines counted so far. A pickled copy, as a graph checkpoint makes one, counts nothing."""

    def __init__(self, wanted: int) -> None:
        self._missing = wanted
        self._ended_s = 0.0
        self._all = threading.Event()

    def add(self, lines: int) -> None:
        """Note a batch."""
        self._missing -= lines
        print(f"{time.monotonic():.2f} {lines} lines", file=sys.stderr, flush=True)
        if self._missing <= 0:
            self._ended_s = time.monotonic()
            self._all.set()

    def wait(self, timeout_s: float) -> float:
        """Return when all lines were counted, in monotonic seconds."""
        if not self._all.wait(timeout_s):
            raise SystemExit(f"{self._missing} lines were not counted within {timeout_s:g} s")
        return self._ended_s

    def __reduce__(self) -> tuple[type[_Total], tuple[int]]:
        return _Total, (0,)


def main() -> None:
    """Run the program until it has counted all lines."""
    engine, port, lines, timeout_s = sys.argv[1:]
    total = _Total(int(lines))

    def count_words(lines: Any) -> None:
        words = lines.flatMap(lambda line: line.split(" ")).map(lambda word: (word, 1))
        counts = words.reduceByKey(add, 2)
        counts.foreachRDD(lambda rdd: total.add(rdd.values().sum() // WORDS_PER_LINE))

    ssc = _ENGINES[engine](tempfile.mkdtemp(prefix="checkpoint-"), int(port), count_words)
    ssc.start()
    print(json.dumps({"ended_s": total.wait(float(timeout_s))}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
