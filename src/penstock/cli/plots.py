"""The plots of commands: a query's progress, and rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoint.tools import BatchFacts
from penstock.checkpoint.tools.offsets import moved
from penstock.errors import ConfigError
from penstock.rate import RateDecision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_progress", "draw_rates"]

_KINDS = (".png", ".svg")


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
    _write(path, partial(_draw_rates, lines=lines, batch_interval_ms=batch_interval_ms))


def _draw_rates(
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


def draw_progress(path: str | Path, batches: Sequence[BatchFacts]) -> None:
    """Write a plot of what batches moved, how long they took, and how far their watermark lags.

    Takes the same files and raises the same as ``draw_rates``.
    """
    timed = [each for each in batches if each.time_ms is not None]
    _write(path, partial(_draw_progress, batches=timed))


def _draw_progress(figure: Figure, batches: Sequence[BatchFacts]) -> None:
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


def _write(path: str | Path, draw: Callable[[Figure], None]) -> None:
    """Write what ``draw`` makes of an empty figure to ``path``."""
    if Path(path).suffix not in _KINDS:
        raise _refused(path, "it is neither PNG nor SVG", "name a file that ends with .png or .svg")
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise _refused(
            path, "matplotlib is not installed", "pip install 'penstock-spark[plot]'"
        ) from e
    figure = Figure(figsize=(8, 6))
    draw(figure)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except OSError as e:
        raise _refused(path, "it cannot be written", "name a file in a folder of yours") from e


def _refused(path: str | Path, why: str, hint: str) -> ConfigError:
    return ConfigError(
        f"the plot cannot be drawn: {why}", operation="draw plot", path=str(path), hint=hint
    )
