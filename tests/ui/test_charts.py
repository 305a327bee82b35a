"""The axes of charts, and what the timelines take for values."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock.status import duration
from penstock.ui.charts import Column, Series, chart
from tests.ui.served import program_page
from tests.ui.test_status import DONE, NOW, with_batches

MINUTE_MS = 60_000


@pytest.mark.parametrize(
    ("value_ms", "axis"),
    [
        (81, ["0", "50 ms", "100 ms"]),
        (81_000, ["0", "50 s", "100 s"]),
        (110_000, ["0", "60 s", "2 min"]),
        (3 * MINUTE_MS, ["0", "2 min", "4 min"]),
        (59 * MINUTE_MS, ["0", "50 min", "100 min"]),
        (150 * MINUTE_MS, ["0", "2 h", "4 h"]),
        (50 * 60 * MINUTE_MS, ["0", "2 days", "4 days"]),
    ],
)
def test_an_axis_of_times_has_round_numbers(value_ms: int, axis: list[str]) -> None:
    series = Series("t", [value_ms], lambda ms: duration(round(ms)), is_time=True)
    drawn = chart(series, [Column("/", "", "", "usual")])
    assert [text for _, text in drawn.grid] == axis


def test_the_input_rate_of_a_late_batch_is_over_all_that_it_waited_for() -> None:
    """It has the records of the ten intervals since the batch before it."""
    first = replace(DONE, batch_id=0, time_ms=NOW - 11_000, records=500)
    late = replace(DONE, batch_id=1, time_ms=NOW - 1000, records=7000)
    page = program_page(with_batches(first, late))
    assert re.search(r"Input rate, records/s</span><span[^>]*>700<", page)
