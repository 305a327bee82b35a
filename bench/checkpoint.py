"""What it costs to look at a checkpoint location of 10,000 batches.

Ours: penstock.checkpoint.tools on a location of Spark's form on the local disk, 2,000 batches with
--quick: inspect of all batches, of the last 20, and validate; times in seconds, the best of three.
The peer of the first: reading the same files and parsing their JSON, and nothing else. Over an
object store requests count: those of one in memory, against the number that is the target.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem
from harness import Metric, parse_options, report

from penstock.checkpoint.tools import inspect, last_state, validate
from penstock.storage import open_storage

_TARGET_S = 2.0
_REQUESTS_A_FILE = 1.2
_LAST_STATE = 5


def main() -> None:
    """Time the tools, and count their requests."""
    options = parse_options(__doc__)
    batches = 2_000 if options.quick else 10_000
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for path, data in _files(batches):
            (place / path).parent.mkdir(exist_ok=True)
            (place / path).write_bytes(data)
        raw_s = _best_s(lambda: _read_all(place))
        all_s = _best_s(lambda: inspect(folder))
        last_s = _best_s(lambda: inspect(folder, last=20))
        validate_s = _best_s(lambda: validate(folder))
    url, few = "memory://bench-checkpoint", 200
    storage = open_storage(url)
    for path, data in _files(few):
        storage.create(path, data)
    name = f"{batches:,} batches"
    target_s = _TARGET_S * batches / 10_000
    metrics = [
        Metric(f"inspect {name}, to the target", "s", all_s, target_s, 1.0, True),
        Metric(f"inspect {name}, to reading the files", "s", all_s, raw_s, None, True),
        Metric(f"inspect the last 20 of {name}", "s", last_s, None, None, True),
        Metric(f"validate {name}", "s", validate_s, None, None, True),
        Metric(
            f"requests of inspect, {few} batches, to 1.2 a file",
            "requests",
            _requests(lambda: inspect(url)),
            _REQUESTS_A_FILE * (2 * few + 1),
            1.0,
            True,
        ),
        Metric(
            "requests of last_state, to 5",
            "requests",
            _requests(lambda: last_state(url)),
            _LAST_STATE,
            1.0,
            True,
        ),
    ]
    report("checkpoint", metrics, as_json=options.json)


def _files(batches: int) -> list[tuple[str, bytes]]:
    conf = {f"spark.sql.streaming.setting{n}": "value" for n in range(12)}
    found = [("metadata", b'{"id":"6cc7d9a3-dd4b-4da6-9c38-5168a8ee4ce7"}')]
    for n in range(batches):
        fields = {"batchWatermarkMs": n, "batchTimestampMs": 1_700_000_000_000 + n, "conf": conf}
        end = {"clicks": {str(partition): 100 * n for partition in range(4)}}
        found.append((f"offsets/{n}", f"v1\n{json.dumps(fields)}\n{json.dumps(end)}".encode()))
        found.append((f"commits/{n}", b'v1\n{"nextBatchWatermarkMs":%d}' % (n + 1)))
    return found


def _read_all(place: Path) -> None:
    for path in (*place.glob("offsets/*"), *place.glob("commits/*")):
        for line in path.read_text().split("\n")[1:]:
            json.loads(line)


def _best_s(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _requests(call: Callable[[], object]) -> int:
    """Return how many requests of a store in memory a call makes."""
    asked: list[str] = []
    state = threading.local()
    methods: dict[str, Any] = {
        name: getattr(MemoryFileSystem, name) for name in ("ls", "find", "cat_file", "info")
    }

    def counted(name: str) -> Callable[..., object]:
        def method(*args: object, **options: object) -> object:
            if getattr(state, "is_inside", False):  # what it asks of itself is the same request
                return methods[name](*args, **options)
            asked.append(name)
            state.is_inside = True
            try:
                return methods[name](*args, **options)
            finally:
                state.is_inside = False

        return method

    for name in methods:
        setattr(MemoryFileSystem, name, counted(name))
    try:
        call()
    finally:
        for name, method in methods.items():
            setattr(MemoryFileSystem, name, method)
    return len(asked)


if __name__ == "__main__":
    main()
