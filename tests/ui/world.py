"""Locations as programs leave them, written without Spark: what the dashboard is shown over."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from penstock.checkpoint.batch_records import (
    BATCHES_KEY,
    BatchRecord,
    JobRecord,
    driver_conf,
    encode_records,
)
from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.offset_log import OffsetLog, OffsetSeq
from penstock.journal import JournalStream, RecordFormat
from penstock.journal.bad_records.dead_letters import DeadLetter, DeadLetterFolder
from penstock.journal.losses.loss_log import create_loss, loss_now
from penstock.journal.retention.consumer_files import ConsumerEntry, Program, write_consumer
from penstock.model import OffsetRange
from penstock.rate import RATES_KEY, EndedBatch, KeptRates, RateDecision, encode_rates
from penstock.receivers import Status
from penstock.receivers.control import write_status
from penstock.storage import open_storage
from tests.journal.helpers import write_blocks

__all__ = ["Batches", "now_ms", "program", "receiver", "stream_of", "world"]

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e&\"'"
"""Shown as text, or a browser would run it."""


_READ = 1100


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Batches:
    """The batches of a program: how many, and what is special about each."""

    count: int
    interval_ms: int = 1000
    ended_ms: int = 0
    """How long ago the newest was due."""
    records: Callable[[int], int] = lambda batch_id: 900 + 37 * (batch_id % 7)
    late_ms: Callable[[int], int] = lambda batch_id: 3 + batch_id % 5
    took_ms: Callable[[int], int] = lambda batch_id: 240 + 23 * (batch_id % 9)
    failed: frozenset[int] = frozenset()
    rerun: frozenset[int] = frozenset()
    error: str = "ValueError: no such column"
    why: str = "pid: the batch took less than the interval, so the rate rises"
    input: str = "clicks"


def program(path: Path, batches: Batches, *, has_rates: bool = True, is_alive: bool = True) -> None:
    """Write a program's logs as its driver would, the newest batch a moment ago."""
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"0f6a1f2e-6a57-4f4c-9a55-3a1f6f2c7d10"}')
    log = OffsetLog(open_storage(path))
    driver = driver_conf("http://127.0.0.1:4040")
    if not is_alive:  # it has a lock that no one holds
        lock = DriverLock(str(path / LOCK_NAME))
        lock.acquire()
        lock.release()
    begin_ms = now_ms() - batches.count * batches.interval_ms - batches.ended_ms
    end = 0
    for batch_id in range(batches.count):
        if 1 < batch_id < batches.count - _READ:  # of these only the names are read
            for name in ("offsets", "commits"):
                os.link(path / name / "1", path / name / str(batch_id))
            continue
        time_ms = begin_ms + batch_id * batches.interval_ms
        end += batches.records(batch_id)
        conf = {
            "spark.penstock.batchIntervalMs": str(batches.interval_ms),
            "spark.penstock.inputs": json.dumps([batches.input]),
            "spark.penstock.run": "r",
            **driver,
        }
        if batch_id:
            conf |= _of_earlier(batches, batch_id - 1, time_ms, has_rates=has_rates)
        line = json.dumps({batches.input: {"r0-00000000": end}})
        entry = OffsetSeq(batch_timestamp_ms=time_ms, conf=conf, sources=(line,))
        text = "\n".join(["v1", *log.encode(entry)])
        _write(path / "offsets" / str(batch_id), text, time_ms + batches.late_ms(batch_id))
        if batch_id not in batches.failed:
            done_ms = time_ms + batches.late_ms(batch_id) + batches.took_ms(batch_id)
            _write(path / "commits" / str(batch_id), 'v1\n{"nextBatchWatermarkMs":0}', done_ms)


def _of_earlier(batches: Batches, before: int, time_ms: int, *, has_rates: bool) -> dict[str, str]:
    due_ms = time_ms - batches.interval_ms
    late_ms, took_ms = batches.late_ms(before), batches.took_ms(before)
    failed = before in batches.failed
    record = BatchRecord(
        before,
        due_ms,
        late_ms,
        late_ms + took_ms,
        plan_ms=4 + before % 3,
        commit_ms=2,
        is_failed=failed,
        is_rerun=before in batches.rerun,
        records={batches.input: batches.records(before)},
        jobs=(
            JobRecord("foreachRDD at job.py:41", took_ms - 30, batches.error if failed else None),
            JobRecord("pprint at job.py:52", 30),
        ),
    )
    conf = {BATCHES_KEY: encode_records([record])}
    if has_rates and not failed:
        rate = 1200.0 + 40 * (before % 11)
        decision = RateDecision(
            due_ms + late_ms + took_ms,
            record.records[batches.input],
            took_ms,
            late_ms,  # type: ignore[index]
            rate,
            rate,
            batches.why,
        )
        kept = KeptRates(
            json.dumps({"version": 1, "rate": rate}), (EndedBatch(before, rate, decision),)
        )
        conf[RATES_KEY] = encode_rates({batches.input: kept})
    return conf


def _write(path: Path, text: str, time_ms: int) -> None:
    path.write_text(text)
    os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))


def stream_of(
    journal: Path, name: str, blocks: int = 12, records: int = 250, old: int = 0
) -> JournalStream:
    """Write a stream, its blocks one after the other until now; the first ``old`` for hours."""
    stream = JournalStream.create(open_storage(journal), name, RecordFormat("string"))
    wanted = [[f"{name} {block} {n}" for n in range(records)] for block in range(blocks)]
    writer = write_blocks(stream, wanted, close=False)
    written = sorted((journal / name / str(writer)).glob("*.parquet"))
    for index, path in enumerate(written):
        age_s = (len(written) - index) * 4 + (3 * 3600 if index < old else 0)
        os.utime(path, (time.time() - age_s, time.time() - age_s))
    return stream


def receiver(stream: JournalStream, name: str = "r0", **facts: object) -> None:
    """Write a receiver's status, as it says itself."""
    said = Status(
        run=f"{0:020d}-{'0' * 32}",
        writer=f"{name}-00000000",
        state="started",
        host=socket.gethostname(),
        pid=os.getpid(),
        changed_ms=now_ms(),
        listening_at="http://127.0.0.1:8080",
    )
    write_status(stream, name, replace(said, **facts))  # type: ignore[arg-type]


def consumer(
    stream: JournalStream, name: str, taken: int, *, location: str, idle_ms: int = 2000
) -> None:
    program_ = Program(location, socket.gethostname(), os.getpid(), now_ms() - idle_ms)
    write_consumer(stream, name, ConsumerEntry({"r0-00000000": taken}, program=program_))


def loss(stream: JournalStream, start: int, end: int, reason: str) -> None:
    create_loss(
        stream.storage, stream.name, loss_now(OffsetRange("r0-00000000", start, end), reason)
    )


def dead_letters(stream: JournalStream, *texts: str) -> None:
    dead = DeadLetterFolder.create(stream.storage, stream.name)
    letters = [
        DeadLetter(
            text.encode(),
            "ValueError",
            f"not a number: {text[:20]}",
            "r0-00000000",
            n,
            datetime.now(timezone.utc),
        )
        for n, text in enumerate(texts)
    ]
    dead.store(OffsetRange("r0-00000000", 0, 10), letters)


def world(folder: Path, evil: str = EVIL) -> list[Path]:
    """Write what the anchor asks for, among sound neighbours.

    One slow stream, one dead consumer, one loss: and names and records that are hostile.
    """
    orders = folder / "orders-by-region"
    program(orders, Batches(240))
    own = stream_of(orders / "journal", "clicks", blocks=15, records=4040)
    receiver(own)
    slow = folder / "enrich-sessions"
    program(
        slow,
        Batches(
            180,
            interval_ms=2000,
            input="web-clicks",
            records=lambda n: 2600 + 300 * (n % 5),
            late_ms=lambda n: max(0, (n - 100) * 310),
            took_ms=lambda n: 1500 + max(0, n - 90) * 12 + 90 * (n % 4),
            failed=frozenset({61, 62}),
            rerun=frozenset({40, 63}),
            error=f"KeyError: {evil} at enrich.py:88",
            why="pid: the batch took 2.4 s of 2 s and began 11 s late, so the rate falls",
        ),
    )
    dead = folder / "nightly-report"
    program(dead, Batches(30, input="events", ended_ms=7_200_000), is_alive=False)
    ingest = folder / "ingest"
    clicks = stream_of(ingest, "web-clicks", blocks=15, records=6400, old=3)
    receiver(clicks, errors=2, last_error=f"Connection reset by peer {evil}")
    consumer(clicks, "web-clicks-1f2e6a57", 54_100, location=f"file://{slow}")
    consumer(clicks, "fraud-scoring", 12_000, location="file:///srv/fraud", idle_ms=10_000_000)
    metrics = stream_of(ingest, "sensors", blocks=9, records=90)
    receiver(metrics, listening_at="http://127.0.0.1:8081")
    consumer(metrics, "sensor-archive", 810, location="file:///srv/archive")
    loss(metrics, 180, 270, "the block's file was damaged by the disk, and no copy of it exists")
    dead_letters(metrics, evil, '{"sensor": 17, "value": "n/a"}', "17;21.4;broken")
    return [orders, slow, dead, ingest]


if __name__ == "__main__":  # a world to look at: python -m tests.ui.world FOLDER
    print(*world(Path(sys.argv[1])))
