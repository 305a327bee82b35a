"""The journal alone: writing durable blocks, reading ranges, and the latency of one acked store.

Writing: a JournalWriter fed with batches of 78-byte log lines, in blocks of 16 MB, against writing
the very bytes of its blocks without a journal (temporary file, fsync, rename, fsync of the folder).
Reading: records per second of CPU, so per core and whatever else the machine does, against pyarrow
on the same files. Latency: one store that waits for its ack, against one such file.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from harness import (
    LINE_BYTES,
    Metric,
    create_durably,
    in_turns,
    log_lines,
    parse_options,
    report,
)

from penstock.conf import StreamingSettings
from penstock.journal import (
    CommitPolicy,
    JournalStream,
    JournalWriter,
    RecordFormat,
    read_batches,
    read_records,
)
from penstock.model import OffsetRange
from penstock.receivers.lines import split_lines
from penstock.storage import open_storage

_BATCH_LINES = 50_000
_BLOCK_BYTES = 16 << 20
_READ_PER_CORE = 3_000_000
_LONE_S = 0.02
"""Between two lone stores: longer than a publish and than the spacing of publishes under load."""
_DEFAULT = StreamingSettings().journal_compression


def main() -> None:
    """Run all parts."""
    options = parse_options(__doc__)
    lines, rounds, stores = (2_000_000, 3, 50) if options.quick else (8_000_000, 7, 100)
    batch = split_lines(log_lines(_BATCH_LINES))
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        metrics: list[Metric] = []
        for compression in sorted(("none", "lz4"), key=lambda name: name != _DEFAULT):
            metrics += _writing(folder, batch, lines, compression, rounds)
        metrics += _reading(folder, batch, lines // 4, rounds)
        metrics.append(_latency(folder, stores, rounds))
    finally:
        shutil.rmtree(folder)
    report("journal", metrics, as_json=options.json)


# -- writing --


def _writing(
    folder: Path, batch: pa.RecordBatch, lines: int, compression: str, rounds: int
) -> list[Metric]:
    blocks = _blocks(_written(folder / "sample", batch, lines, compression))
    size_mb = sum(map(len, blocks)) / 1e6
    sides = {
        f"journal {compression}": partial(_write_journal, folder, batch, lines, compression),
        f"raw files {compression}": partial(_write_raw, folder, blocks),
    }
    seconds = in_turns(sides, rounds, "s")
    ours, peer = (size_mb / seconds[name] for name in sides)
    text_mb = lines * LINE_BYTES / 1e6
    print(f"  {compression}: {text_mb:.0f} MB of lines in {size_mb:.0f} MB of blocks")
    shutil.rmtree(folder / "sample")
    return [Metric(f"durable blocks, {compression}", "MB/s written", ours, peer, 0.8)]


def _write_journal(folder: Path, batch: pa.RecordBatch, lines: int, compression: str) -> float:
    """Return the seconds until all lines are durable."""
    place = folder / "journal"
    stream = _stream(place)
    writer = JournalWriter(stream, "r0", policy=_policy(), compression=compression)
    start_s = time.perf_counter()
    for _ in range(lines // batch.num_rows):
        writer.append_all(batch)
    writer.flush()
    seconds = time.perf_counter() - start_s
    writer.close()
    shutil.rmtree(place)
    return seconds


def _write_raw(folder: Path, blocks: Iterable[bytes]) -> float:
    """Return the seconds to write the same files without a journal."""
    place = folder / "raw"
    place.mkdir()
    start_s = time.perf_counter()
    for number, data in enumerate(blocks):
        create_durably(place, str(number), data)
    seconds = time.perf_counter() - start_s
    shutil.rmtree(place)
    return seconds


# -- reading --


def _reading(folder: Path, batch: pa.RecordBatch, lines: int, rounds: int) -> list[Metric]:
    stream = _written(folder / "journal", batch, lines, _DEFAULT)
    writer = stream.writers()[0]
    wanted = [OffsetRange(str(writer), 0, lines)]
    files = [path for path in _files(stream) if pq.read_metadata(path).num_rows]

    def cpu_rate(read: Callable[[], object]) -> float:
        start_s = time.process_time()
        read()
        return lines / (time.process_time() - start_s)

    def parquet() -> Iterable[pa.RecordBatch]:
        for path in files:
            yield from pq.read_table(path, use_threads=False).to_batches()

    reads: dict[str, Callable[[], Iterable[object]]] = {
        "read_batches": lambda: read_batches(stream, wanted),
        "pyarrow batches": parquet,
        "read_records": lambda: read_records(stream, wanted),
        "pyarrow to_pylist": lambda: (r for b in parquet() for r in b.column(0).to_pylist()),
    }
    sides = {name: partial(cpu_rate, partial(_drain, read)) for name, read in reads.items()}
    rate = in_turns(sides, rounds, "records/s of CPU")
    shutil.rmtree(folder / "journal")
    unit = "records/s/core"
    arrow, records = rate["read_batches"], rate["read_records"]
    return [
        Metric("read Arrow, to pyarrow alone", unit, arrow, rate["pyarrow batches"]),
        Metric("read Arrow, to what is wanted", unit, arrow, _READ_PER_CORE, 1.0),
        Metric("read records, to pyarrow alone", unit, records, rate["pyarrow to_pylist"]),
        Metric("read records, to what is wanted", unit, records, _READ_PER_CORE, 1.0),
    ]


def _drain(read: Callable[[], Iterable[object]]) -> None:
    for _ in read():
        pass


# -- latency --


def _latency(folder: Path, stores: int, rounds: int) -> Metric:
    stream = _stream(folder / "journal")
    writer = JournalWriter(stream, "r0", compression=_DEFAULT)
    _store_and_wait(writer)
    block = stream.storage.read(f"lines/{writer.id}/{0:020d}.parquet")
    place = folder / "raw"
    place.mkdir()
    names = map(str, range(sys.maxsize))
    sides = {
        "acked store": lambda: _median_ms(stores, lambda: _store_and_wait(writer)),
        "raw file": lambda: _median_ms(stores, lambda: create_durably(place, next(names), block)),
    }
    latency = in_turns(sides, rounds, "ms")
    writer.close()
    ours, peer = latency.values()
    return Metric("one acked store", "ms", ours, peer, round(1 / 1.5, 3), less_is_better=True)


def _store_and_wait(writer: JournalWriter) -> None:
    durable = threading.Event()
    writer.append("x" * (LINE_BYTES - 1), ack=durable.set)
    if not durable.wait(10):
        raise RuntimeError("no ack within 10 s") from writer.error


def _median_ms(times: int, act: Callable[[], None]) -> float:
    figures = []
    for _ in range(times):
        time.sleep(_LONE_S)
        start_s = time.perf_counter()
        act()
        figures.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(figures)


# -- shared --


def _stream(place: Path) -> JournalStream:
    return JournalStream.create(open_storage(place), "lines", RecordFormat("string"))


def _policy() -> CommitPolicy:
    return CommitPolicy(max_block_bytes=_BLOCK_BYTES)


def _written(place: Path, batch: pa.RecordBatch, lines: int, compression: str) -> JournalStream:
    """Return a journal stream that holds that many lines."""
    stream = _stream(place)
    writer = JournalWriter(stream, "r0", policy=_policy(), compression=compression)
    for _ in range(lines // batch.num_rows):
        writer.append_all(batch)
    writer.close()
    return stream


def _files(stream: JournalStream) -> list[Path]:
    root = Path(stream.storage.url.removeprefix("file://"))
    return sorted(root.glob("lines/r0-*/*.parquet"))


def _blocks(stream: JournalStream) -> list[bytes]:
    return [path.read_bytes() for path in _files(stream)]


if __name__ == "__main__":
    main()
