"""A location's status with everything in it."""

from __future__ import annotations

from penstock.journal.losses.loss_log import Loss
from penstock.model import OffsetRange
from penstock.status.model import (
    ConsumerStatus,
    InputStatus,
    LocationStatus,
    Process,
    ReceiverStatus,
    StreamStatus,
    WriterStatus,
)

NOW_MS = 1_700_000_000_000
_HERE = Process("host", 7)


def stream_status(name: str = "clicks") -> StreamStatus:
    return StreamStatus(
        name=name,
        schema="string",
        writers=(
            WriterStatus("r-0", "sealed", 1, 100, 0, 40, 40, 0),
            WriterStatus("r-1", "damaged", 2, 200, 10, 90, 70, 10),
        ),
        receivers=(
            ReceiverStatus(
                name="r",
                stream=name,
                state="restarting",
                writer="r-1",
                process=_HERE,
                changed_ms=NOW_MS,
                errors=3,
                last_error="no",
                listening_at=None,
                rate=5.0,
                newest_ms=NOW_MS,
            ),
        ),
        consumers=(
            ConsumerStatus("report", {}, 30, 2500, NOW_MS - 9000, "file:/c", _HERE),
            ConsumerStatus("reader", {}, 0, None, None, None, None),
        ),
        records=110,
        blocks=3,
        size_bytes=300,
        rate=5.0,
        oldest_ms=NOW_MS - 60_000,
        uncommitted_bytes=200,
        max_bytes=1000,
        max_lag_records=500,
        losses=(),
        lost_records=10,
        problems=("a consumer's file is damaged",),
    )


def full_status() -> LocationStatus:
    stream = stream_status()
    loss = Loss(OffsetRange("0", 5, 12), "gone", "me", "host", "2026-11-22T20:00:00+00:00")
    return LocationStatus(
        location="file:/data/report",
        name="report",
        kind="program",
        read_ms=NOW_MS,
        process=_HERE,
        is_running=True,
        spark_ui=None,
        batch_interval_ms=1000,
        batches=(),
        earlier=0,
        committed=11,
        inputs=(
            InputStatus("clicks", 30, 2500, None, True, 100.0),
            InputStatus("topic", None, None, None, False, None),
        ),
        streams=(stream,),
        losses={"topic": (loss,)},
        next=None,
        problems=("offsets/3 is damaged",),
        lost_records={"topic": 7},
        dead_letters={"clicks": 4},
    )
