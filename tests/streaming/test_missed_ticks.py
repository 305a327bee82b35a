"""Which ticks that passed without a batch need one: each record is in all of its windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.missed_ticks import ticks_needed
from penstock.streaming.operations.dstream import SlidingWindows
from penstock.streaming.operations.window_times import window_ends

ZERO_MS = 1000


class Plain(BaseDStream):
    """A stream of this graph's shape; nothing is computed from it."""

    def __init__(self, *parents: BaseDStream) -> None:
        self._parents = parents

    @property
    def parents(self) -> tuple[BaseDStream, ...]:
        return self._parents

    def compute(self, time_ms: int) -> Any:
        raise AssertionError


class Windows(SlidingWindows, Plain):
    def __init__(self, parent: BaseDStream, window_ms: int, slide_ms: int) -> None:
        super().__init__(parent)
        self._window_ms, self._slide_ms, self._zero_ms = window_ms, slide_ms, ZERO_MS


@pytest.mark.parametrize(
    ("times", "window", "slide", "until", "ends"),
    [
        ([1], 1, 1, 9, [1]),
        ([1], 3, 1, 9, [1, 2, 3]),
        ([1], 4, 2, 9, [2, 4]),
        ([2], 4, 2, 9, [2, 4]),
        ([1, 2, 3], 3, 3, 9, [3]),
        ([1, 4], 3, 3, 9, [3, 6]),
        ([1, 2, 9], 4, 2, 99, [2, 4, 10, 12]),
        ([1], 10, 2, 5, [2, 4]),  # the others are yet to come
        ([1, 2], 1, 3, 9, []),  # windows that leave batches out
        ([], 5, 1, 9, []),
    ],
)
def test_window_ends(
    times: list[int], window: int, slide: int, until: int, ends: list[int]
) -> None:
    found = window_ends(times, window_ms=window, slide_ms=slide, zero_ms=300, until_ms=until)
    assert found == ends


def test_a_long_downtime_needs_no_more_batches_than_records_have_windows() -> None:
    source = Plain()
    windows = Windows(source, 6000, 2000)
    months = range(12_000, 8_000_000_000, 1000)
    made = ticks_needed([windows, source], {source: [10_000, 11_000]}, months)
    assert made == [13_000, 15_000]


def test_files_of_the_downtime_have_batches_of_their_own_where_windows_look_at_them() -> None:
    files, lines = Plain(), Plain()
    windows = Windows(Plain(files), 2000, 2000)
    taken: dict[BaseDStream, list[int]] = {files: [14_000], lines: [13_000]}
    streams = [windows, *windows.parents, files, lines]
    assert ticks_needed(streams, taken, range(12_000, 99_000, 1000)) == [14_000, 15_000]


@dataclass
class Driver:
    """Plans batches as the engine does, and is killed as often as a test wants."""

    streams: list[BaseDStream]
    source: BaseDStream
    now_ms: int = ZERO_MS
    batches: dict[int, bool] = field(default_factory=dict)  # whether they took records

    def run(self, has_records: list[bool], killed_after: int) -> None:
        """Start, make what was missed, but no more than that many, then batches in time."""
        last_ms = max(self.batches, default=self.now_ms)
        taken = {self.source: [time_ms for time_ms, some in self.batches.items() if some]}
        passed = range(last_ms + 1000, self.now_ms + 1000, 1000)
        missed = ticks_needed(self.streams, taken, passed) if passed else []
        self.batches |= dict.fromkeys(missed[:killed_after], False)
        if killed_after >= len(missed):
            for some in has_records:
                self.now_ms += 1000
                self.batches[self.now_ms] = some


durations = st.integers(1, 4)
runs = st.lists(
    st.tuples(st.lists(st.booleans(), max_size=8), st.integers(0, 9), st.integers(0, 30)),
    max_size=6,
)


@given(
    slides=durations, widths=durations, outer_slides=durations, outer_widths=durations, runs=runs
)
def test_each_record_is_in_width_by_slide_windows_whatever_is_killed(
    slides: int, widths: int, outer_slides: int, outer_widths: int, runs: Any
) -> None:
    source = Plain()
    inner = Windows(source, slides * widths * 1000, slides * 1000)
    outer_slide = inner.slide_ms * outer_slides
    outer = Windows(inner, outer_slide * outer_widths, outer_slide)
    driver = Driver([outer, inner, source], source)
    for has_records, killed_after, downtime in runs:
        driver.run(has_records, killed_after)
        driver.now_ms += downtime * 1000
    driver.run([False] * 40, 99)  # until all windows are over, some of them made late
    driver.now_ms += 40_000
    driver.run([False], 99)

    batches = driver.batches
    ends = [t for t in batches if (t - ZERO_MS) % inner.slide_ms == 0]
    outer_ends = [t for t in batches if (t - ZERO_MS) % outer_slide == 0]
    for time_ms in (t for t, some in batches.items() if some):
        holding = [end for end in ends if end - inner._window_ms < time_ms <= end]
        assert len(holding) == widths
        for inner_end in holding:
            assert (
                sum(end - outer._window_ms < inner_end <= end for end in outer_ends) == outer_widths
            )
