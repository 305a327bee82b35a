"""Draws rates: limit, batch time and delay over time, with a line for each name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.plots import write_plot
from penstock.rate import RateDecision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_rates"]


def draw_rates(
    path: str | Path,
    lines: Mapping[str, Sequence[RateDecision]],
    batch_interval_ms: int | None = None,
) -> None:
    """Write a plot to ``path``, which ends with .png or .svg.

    Args:
        path: the file.
        lines: what to draw, by the name for the legend; batches in the order of their ends.
        batch_interval_ms: marked among the batch times, if given.

    Raises:
        ConfigError: the file has another type, it cannot be written, or matplotlib is missing.
    """
    write_plot(path, partial(_draw, lines=lines, batch_interval_ms=batch_interval_ms))


def _draw(
    figure: Figure, lines: Mapping[str, Sequence[RateDecision]], batch_interval_ms: int | None
) -> None:
    rates, times, delays = figure.subplots(3, 1, sharex=True)
    begin_ms = min((line[0].time_ms for line in lines.values() if line), default=0)
    for name, batches in lines.items():
        ends_s = [(batch.time_ms - begin_ms) / 1000 for batch in batches]
        (line,) = rates.step(ends_s, [b.rate for b in batches], where="post", label=name)
        look = {"color": line.get_color(), "where": "post"}
        times.step(ends_s, [b.processing_delay_ms / 1000 for b in batches], **look)
        delays.step(ends_s, [b.scheduling_delay_ms / 1000 for b in batches], **look)
    if batch_interval_ms is not None:
        times.axhline(batch_interval_ms / 1000, color="grey", linewidth=0.6)
    rates.set_yscale("log")
    rates.set_ylabel("limit, records/s")
    times.set_ylabel("batch time, s")
    delays.set_ylabel("scheduling delay, s")
    delays.set_xlabel("s")
    for axes in (times, delays):
        axes.set_ylim(bottom=0)
    if lines:
        rates.legend(loc="best", frameon=False)
