"""One program of the benchmark of batches; the last line of its output is JSON.

    _batched_program.py penstock|streamz ADDRESS TOPIC RECORDS

Reads all records of the topic. The rate is that of the batches after the first ones, in which
processes and connections are made.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from typing import Any

_MOST = 100_000
"""So many records of a partition are in a batch."""
_TIMEOUT_S = 150.0


def work(values: list[bytes]) -> tuple[int, int]:
    """The function: number and bytes of a list of values."""
    return len(values), sum(map(len, values))


class Count:
    """What came, and when."""

    def __init__(self, records: int) -> None:
        self._left = records
        self._times: list[tuple[float, int]] = []
        self._all = threading.Event()

    def add(self, result: tuple[int, int]) -> None:
        """Take in a list's number and bytes."""
        self._times.append((time.perf_counter(), result[0]))
        self._left -= result[0]
        if self._left <= 0:
            self._all.set()

    def rate(self) -> float:
        """Wait for all; return records a second after the first fifth of them."""
        assert self._all.wait(_TIMEOUT_S), f"{self._left} records did not come"
        first = len(self._times) // 5
        seconds = self._times[-1][0] - self._times[first][0]
        return sum(count for _, count in self._times[first + 1 :]) / seconds


def main() -> None:
    """Run one program and print its rate."""
    engine, address, topic, records = sys.argv[1:]
    conf = {"bootstrap.servers": address, "auto.offset.reset": "earliest", "group.id": "bench"}
    count = Count(int(records))
    {"penstock": _penstock, "streamz": _streamz}[engine](conf, topic, count)
    print(json.dumps({"records_per_s": count.rate()}), flush=True)
    os._exit(0)


def _penstock(conf: dict[str, Any], topic: str, count: Count) -> None:
    from penstock.batched import from_kafka_batched

    stream = from_kafka_batched(
        topic, conf, tempfile.mkdtemp(), poll_interval=0, max_batch_size=_MOST
    )
    stream.map(work).gather().sink(count.add).add_checkpoint()
    stream.start()


def _streamz(conf: dict[str, Any], topic: str, count: Count) -> None:
    from streamz import Stream

    group = {**conf, "group.id": f"bench-{os.getpid()}"}
    stream = Stream.from_kafka_batched(topic, group, poll_interval=0, max_batch_size=_MOST)
    stream.map(work).sink(count.add)
    stream.start()


if __name__ == "__main__":
    main()
