"""Draws a query's progress: what each batch moved, how long it took, how far its watermark lags."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoint.tools import BatchFacts
from penstock.checkpoint.tools.offsets import moved
from penstock.cli.plots import write_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_progress"]


def draw_progress(path: str | Path, batches: Sequence[BatchFacts]) -> None:
    """Write a plot of batches to ``path``; raises as ``write_plot``."""
    write_plot(path, partial(_draw, batches=[each for each in batches if each.time_ms is not None]))


def _draw(figure: Figure, batches: Sequence[BatchFacts]) -> None:
    steps, times, lags = figure.subplots(3, 1, sharex=True)
    times_ms = [each.time_ms or 0 for each in batches]
    ends_s = [(time_ms - min(times_ms)) / 1000 for time_ms in times_ms]
    sources = dict.fromkeys(source for each in batches for source in each.offsets)
    for source in sources:
        moves = [
            moved(each.start_offsets.get(source), each.offsets.get(source)) for each in batches
        ]
        steps.plot(ends_s, list(map(_or_gap, moves)), ".-", label=f"source {source}")
    took_ms = [each.took_ms for each in batches]
    times.plot(ends_s, [_or_gap(ms) / 1000 for ms in took_ms], ".-")
    lags_ms = [each.watermark_ms and (each.time_ms or 0) - each.watermark_ms for each in batches]
    lags.plot(ends_s, [_or_gap(ms or None) / 1000 for ms in lags_ms], ".-")
    steps.set_ylabel("moved a batch")
    times.set_ylabel("batch time, s")
    lags.set_ylabel("watermark lag, s")
    lags.set_xlabel("s")
    if sources:
        steps.legend(loc="best", frameon=False)


def _or_gap(value: int | None) -> float:
    """Return a number that is drawn, or one that leaves a gap in the line."""
    return float("nan") if value is None else value
