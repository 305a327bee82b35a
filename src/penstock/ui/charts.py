"""Charts as coordinates of SVG, which the templates draw. Pure.

A chart has a column for each batch, or for some of them where there are many. It has a fixed
coordinate system, which the browser scales. Colours are the stylesheet's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Tone = Literal["usual", "rerun", "failed", "running"]
_TONES: tuple[Tone, ...] = ("usual", "running", "rerun", "failed")

WIDTH, HEIGHT = 640, 150
LEFT, TOP = 58, 10
_RIGHT, _BOTTOM = 8, 20
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - _RIGHT, HEIGHT - TOP - _BOTTOM
_UNITS_MS = ((144e6, 86.4e6), (6e6, 3.6e6), (100e3, 60e3))
"""From which time on an axis counts days, hours, minutes: half of it is still a round number."""


@dataclass(frozen=True, slots=True)
class Column:
    """What all charts of a group show at one position of their axis."""

    link: str
    label: str
    """Which batches, and when."""
    time: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one chart, one for each column; None is a gap."""

    title: str
    values: Sequence[float | None]
    shown: Callable[[float], str]
    """A value as text."""
    line: float | None = None
    """A value to compare the others with."""
    is_time: bool = False
    """Whether the values are milliseconds."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart, in the coordinates of its drawing."""

    title: str
    now: str
    """The newest value."""
    grid: Sequence[tuple[float, str]]
    """The height of each line of the grid, and its value."""
    bars: Sequence[tuple[Tone, str]]
    """The columns of each tone as one path: a thousand elements would be slow to draw."""
    limit: float | None
    """The height of the series' line."""
    texts: str
    """Each column's value, as JSON for the page's script."""


@dataclass(frozen=True, slots=True)
class Group:
    """Charts that have their columns in common."""

    charts: Sequence[Chart]
    columns: Sequence[Column]

    @property
    def data(self) -> str:
        """What the page's script needs to show a column under the pointer, as JSON."""
        found = [[each.link, each.label] for each in self.columns]
        return json.dumps(found, separators=(",", ":"))


def group(columns: Sequence[Column], *series: Series) -> Group:
    """Return the charts of those series of which any value is known."""
    return Group([chart(each, columns) for each in series if _known(each)], columns)


def chart(series: Series, columns: Sequence[Column]) -> Chart:
    """Return the chart of a series with a known value."""
    known = _known(series)
    top = (_nice_ms if series.is_time else _nice)(max(*known, series.line or 0.0, 0.0))
    texts = ["" if value is None else series.shown(value) for value in series.values]
    bars = [(tone, _path(series.values, columns, tone, top)) for tone in _TONES]
    return Chart(
        series.title,
        series.shown(known[-1]),
        [(_y(part, 1), series.shown(part * top) if part else "0") for part in (0.0, 0.5, 1.0)],
        [(tone, path) for tone, path in bars if path],
        None if series.line is None else _y(series.line, top),
        json.dumps(texts, separators=(",", ":"), ensure_ascii=False),
    )


def sparkline(values: Sequence[float | None]) -> str:
    """Return the points of a small line without axes, 100 by 22; none for fewer than two values."""
    known = [value or 0.0 for value in values]
    if len(known) < 2:
        return ""
    top = max(known) or 1.0
    step = 96 / (len(known) - 1)
    return " ".join(f"{2 + i * step:.1f},{20 - 18 * v / top:.1f}" for i, v in enumerate(known))


def _known(series: Series) -> list[float]:
    return [value for value in series.values if value is not None]


def _path(values: Sequence[float | None], columns: Sequence[Column], tone: Tone, top: float) -> str:
    width = PLOT_WIDTH / max(len(columns), 1)
    gap = min(1.5, width / 4)
    bottom = TOP + PLOT_HEIGHT
    parts = []
    for index, (value, column) in enumerate(zip(values, columns, strict=True)):
        if column.tone != tone or value is None:
            continue
        y = min(_y(value, top), bottom - 1)  # what failed or was tiny is still to be seen
        x = LEFT + index * width + gap / 2
        parts.append(f"M{x:.1f} {bottom}V{y:.1f}h{max(width - gap, 0.5):.1f}V{bottom}z")
    return "".join(parts)


def _y(value: float, top: float) -> float:
    return round(TOP + PLOT_HEIGHT * (1 - min(value / top, 1.0)), 1)


def _nice(value: float) -> float:
    """Return the next number above that reads well in halves: 1, 2, 4, 5 or 10 with zeros."""
    if value <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(each * scale for each in (1, 2, 4, 5, 10) if each * scale >= value * 0.9999)


def _nice_ms(value_ms: float) -> float:
    """Return the same of milliseconds, in the unit that they are shown in."""
    unit = next((unit for least, unit in _UNITS_MS if value_ms > least), 1.0)
    return _nice(value_ms / unit) * unit
