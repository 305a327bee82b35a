"""A program whose newest offsets are damaged goes on after what the errors' hints say is done."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from penstock.errors import LogFormatError, RecoveryMismatchError
from penstock.streaming import StreamingContext
from penstock.streaming.engine.batch_lifecycle import BatchLifecycle
from penstock.testing.stepper import Stepper
from tests.streaming.runs import Runs
from tests.waiting import eventually

pytestmark = pytest.mark.spark


def count(new: list[str], total: int | None) -> int:
    return len(new) + (total or 0)


@pytest.fixture
def start(runs: Runs, tmp_path: Path) -> Callable[[], Stepper]:
    def define(ssc: StreamingContext) -> None:
        lines = ssc.tailStream(str(tmp_path / "log"), name="log")

        def write(df: DataFrame, batch_id: int) -> None:
            written[batch_id] = sorted(row.value for row in df.collect())

        lines.foreachBatch(write)
        counts = lines.map(lambda line: ("lines", line)).updateStateByKey(count).checkpoint(1)
        counts.foreachRDD(lambda rdd: totals.update(rdd.collect()))

    def start() -> Stepper:
        return runs.start_program(define)

    written: dict[int, list[str]] = {}
    totals: dict[str, int] = {}
    start.written, start.totals = written, totals  # type: ignore[attr-defined]
    return start


def test_a_damaged_newest_entry(
    start: Any, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"

    def total() -> int:
        return sum(map(len, start.written.values()))

    stepper = start()
    for number in range(3):
        with log.open("a") as file:
            file.write(f"{number}\n")
        assert eventually(lambda n=number: bool(stepper.step()) and total() == n + 1)
    with monkeypatch.context() as killed:  # which keeps the state before the newest batch
        killed.setattr(BatchLifecycle, "close", lambda batches: None)
        runs.stop()

    newest = max((runs.location / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.write_bytes(newest.read_bytes()[:50])
    with pytest.raises(LogFormatError) as damaged:
        start()
    (command,) = re.findall("`(.*?)`", str(damaged.value.hint))
    subprocess.run(["/bin/sh", "-c", command], check=True)
    with pytest.raises(RecoveryMismatchError) as ahead:
        start()
    (mark,) = re.findall(r"file://(\S+)", str(ahead.value.hint))
    os.unlink(mark)

    with log.open("a") as file:
        file.write("3\n")
    del start.written[int(newest.name)]  # as a sink would that replaces what a batch wrote
    stepper = start()
    assert eventually(lambda: bool(stepper.step()) and total() == 4)
    assert sorted(line for lines in start.written.values() for line in lines) == list("0123")
    assert start.totals == {"lines": 4}
