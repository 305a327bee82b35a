"""A run with killed drivers and workers leaves what a run without them does, batch by batch."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.driver import Driver
from tests.state.helpers import Model
from tests.streaming.state_program import START_MS, TIMEOUT_S, records_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES = 12
KILLS = [("before", 3), ("after", 6), ("output", 9)]
PROGRAM = Path(__file__).with_name("state_program.py")


def of_each_key(pairs: list[list[Any]]) -> dict[str, list[Any]]:
    """Return what each key's records are, in order: keys lie in several partitions."""
    found: dict[str, list[Any]] = {}
    for key, *rest in pairs:
        found.setdefault(key, []).append(rest)
    return found


def test_killed_is_uninterrupted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    common = [str(tmp_path / "checkpoint"), str(out), str(BATCHES)]
    for point, batch in KILLS:
        moment = [point, str(START_MS + 1000 * batch)]
        with Driver(PROGRAM, [*common, *moment], tmp_path / "log") as driver:
            assert driver.process.wait() == -signal.SIGKILL
    with Driver(PROGRAM, common, tmp_path / "log") as driver:
        driver.wait_line("done")
    model = Model()
    for number in range(BATCHES):
        time_ms = START_MS + 1000 * (number + 1)
        wanted = model.update(records_of(number), time_ms, TIMEOUT_S * 1000)
        given = json.loads((out / f"{time_ms}.out").read_text())
        assert of_each_key(given) == of_each_key(wanted), number
        assert dict(json.loads((out / f"{time_ms}.state").read_text())) == model.sums, number
