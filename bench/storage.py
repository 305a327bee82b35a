"""Storage: publish, read, list and delete small files, beside the raw client of each store.

Stores are the local disk, HDFS (Hadoop's cluster for tests, three DataNodes), and S3 (moto). The
raw client does the same steps without checks, limits and translation of errors: on a disk a
temporary file, fsync, rename and fsync of the folder; on HDFS hdfs-native's create, close and
rename; on S3 a conditional put of s3fs. Times are medians of single operations, ours and the
peer's in turns. Last, the requests that a batch of a journal input makes: those
of a batch with nothing new, and of one over five new blocks.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
from harness import Metric, create_durably, parse_options, report
from harness.stores import hdfs_root, s3_root
from hdfs_native import Client, WriteOptions

from penstock.storage import Storage, open_storage

_SIZES = {"1 kB": 1_000, "1 MB": 1_000_000}
_LISTED = 200
_IDLE_REQUESTS, _BUSY_REQUESTS = 2, 11


class Raw(NamedTuple):
    """The same operations by a store's own client, on names in one folder."""

    create: Callable[[str, bytes], object]
    read: Callable[[str], object]
    list: Callable[[], object]
    delete: Callable[[str], object]


def main() -> None:
    """Measure each store that is there."""
    options = parse_options(__doc__)
    rounds = 20 if options.quick else 200
    metrics: list[Metric] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        metrics += _measure("local", open_storage(f"{folder}/ours"), _local(Path(folder)), rounds)
    with hdfs_root() as url:
        if url is None:
            print("  HDFS is not measured: run scripts/hdfs.sh")
        else:
            metrics += _measure("HDFS", open_storage(f"{url}/ours"), _hdfs(url), rounds)
    with s3_root() as url:
        metrics += _measure("S3", open_storage(f"{url}/ours"), _s3(f"{url}/raw"), rounds)
    report("storage", [*metrics, *_requests()], as_json=options.json)


def _measure(store: str, ours: Storage, raw: Raw, rounds: int) -> Iterator[Metric]:
    for number in range(_LISTED):
        ours.create(f"listed/{number}", b"x")
        raw.create(f"listed-{number}", b"x")
    for size, count in _SIZES.items():
        data = os.urandom(count)
        yield _compare(
            f"{store}: publish {size}",
            rounds,
            lambda n, size=size, data=data: ours.create(f"files/{size}/{n}", data),
            lambda n, size=size, data=data: raw.create(f"{size}-{n}", data),
        )
        yield _compare(
            f"{store}: read {size}",
            rounds,
            lambda n, size=size: ours.read(f"files/{size}/{n}"),
            lambda n, size=size: raw.read(f"{size}-{n}"),
        )
    listed = [lambda n: ours.list("listed"), lambda n: raw.list()]
    yield _compare(f"{store}: list {_LISTED} and more", rounds, *listed)
    yield _compare(
        f"{store}: delete",
        rounds,
        lambda n: ours.delete(f"files/1 kB/{n}"),
        lambda n: raw.delete(f"1 kB-{n}"),
    )


def _compare(
    name: str, rounds: int, ours: Callable[[int], object], peer: Callable[[int], object]
) -> Metric:
    times_ms: dict[Callable[[int], object], list[float]] = {ours: [], peer: []}
    for number in range(rounds):
        for side, taken in times_ms.items():
            began_s = time.perf_counter()
            side(number)
            taken.append((time.perf_counter() - began_s) * 1000)
    medians = [statistics.median(times_ms[side]) for side in (ours, peer)]
    print(f"  {name}: {medians[0]:.2f} and {medians[1]:.2f} ms", flush=True)
    return Metric(name, "ms", *medians, less_is_better=True)


def _local(folder: Path) -> Raw:
    place = folder / "raw"
    place.mkdir()
    return Raw(
        lambda name, data: create_durably(place, name, data),
        lambda name: (place / name).read_bytes(),
        lambda: list(os.scandir(place)),
        lambda name: (place / name).unlink(),
    )


def _hdfs(url: str) -> Raw:
    service, _, path = url.removeprefix("hdfs://").partition("/")
    client, place = Client(f"hdfs://{service}"), f"/{path}/raw"

    def create(name: str, data: bytes) -> None:
        with client.create(f"{place}/.{name}", WriteOptions()) as file:
            file.write(data)
        client.rename(f"{place}/.{name}", f"{place}/{name}")

    return Raw(
        create,
        lambda name: client.read(f"{place}/{name}").read(),
        lambda: list(client.list_status(place)),
        lambda name: client.delete(f"{place}/{name}"),
    )


def _s3(url: str) -> Raw:
    files: Any = fsspec.filesystem("s3", use_listings_cache=False)
    return Raw(
        lambda name, data: files.pipe_file(f"{url}/{name}", data, mode="create"),
        lambda name: files.cat_file(f"{url}/{name}"),
        lambda: files.ls(url),
        lambda name: files.rm_file(f"{url}/{name}"),
    )


def _requests() -> Iterator[Metric]:
    sys.path.append(str(Path(__file__).parents[1]))
    from penstock.journal import JournalWriter
    from tests.journal.test_requests import Program, publish

    program = Program()
    writer = JournalWriter(program.stream, "r0")
    for blocks in (5, 5, 0, 0):
        publish(writer, "a", blocks)
        program.batch()
    idle = program.batch().total()
    for _ in range(2):  # the second one retires the first one's blocks, too
        publish(writer, "a", 5)
        busy = program.batch().total()
    writer.close()
    for name, ours, most in (
        ("nothing new", idle, _IDLE_REQUESTS),
        ("5 blocks", busy, _BUSY_REQUESTS),
    ):
        yield Metric(f"requests of a batch, {name}", "", ours, most, 1.0, less_is_better=True)


if __name__ == "__main__":
    main()
