"""Charts as SVG: a column for each batch, or for some of them where there are many. Pure.

A chart has a fixed coordinate system, which the browser scales. Colours are the stylesheet's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.ui.html import Html, h

Tone = Literal["usual", "rerun", "failed", "running"]
_TONES: tuple[Tone, ...] = ("usual", "running", "rerun", "failed")

_WIDTH, _HEIGHT = 640, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 10, 20
_UNITS_MS = ((144e6, 86.4e6), (6e6, 3.6e6), (100e3, 60e3))
"""From which time on an axis counts days, hours, minutes: half of it is still a round number."""
_PLOT_W, _PLOT_H = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM


@dataclass(frozen=True, slots=True)
class Column:
    """What all charts of a page show at one position of their axis."""

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


def column_data(columns: Sequence[Column]) -> str:
    """Return what the page's script needs to show a column under the pointer."""
    return json.dumps([[each.link, each.label] for each in columns], separators=(",", ":"))


def chart(series: Series, columns: Sequence[Column]) -> Html | None:
    """Return one chart; None where nothing tells any of its values."""
    known = [value for value in series.values if value is not None]
    if not known:
        return None
    now = series.shown(known[-1])
    top = (_nice_ms if series.is_time else _nice)(max(*known, series.line or 0.0, 0.0))
    texts = ["" if value is None else series.shown(value) for value in series.values]
    summary = f"{series.title}: the newest is {now}"
    return h(
        "figure",
        h(
            "figcaption",
            h("span", series.title),
            h("span", now, class_="now"),
        ),
        h(
            "svg",
            _grid(series, top),
            [_bars(series.values, columns, tone, top) for tone in _TONES],
            _line(series, top),
            _times(columns),
            h("rect", class_="cursor", x=0, y=_TOP, width=0, height=_PLOT_H),
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            aria_label=summary,
            data_values=json.dumps(texts, separators=(",", ":"), ensure_ascii=False),
            data_left=_LEFT,
            data_plot=_PLOT_W,
        ),
        class_="chart",
    )


def sparkline(values: Sequence[float | None], label: str) -> Html:
    """Return a small line without axes; nothing for fewer than two values."""
    known = [value or 0.0 for value in values]
    if len(known) < 2:
        return Html("")
    top = max(known) or 1.0
    step = 96 / (len(known) - 1)
    points = " ".join(f"{2 + i * step:.1f},{20 - 18 * v / top:.1f}" for i, v in enumerate(known))
    line = h("polyline", points=points)
    return h("svg", line, class_="spark", viewBox="0 0 100 22", role="img", aria_label=label)


def _grid(series: Series, top: float) -> list[Html]:
    found = []
    for part in (0.0, 0.5, 1.0):
        y = _y(part * top, top)
        found.append(h("line", class_="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y))
        text = series.shown(part * top) if part else "0"
        found.append(h("text", text, class_="axis", x=_LEFT - 6, y=y + 3.5, text_anchor="end"))
    return found


def _bars(
    values: Sequence[float | None], columns: Sequence[Column], tone: Tone, top: float
) -> Html | None:
    """Return the columns of one tone as one path: a thousand elements would be slow to draw."""
    width = _PLOT_W / max(len(columns), 1)
    gap = min(1.5, width / 4)
    parts = []
    for index, (value, column) in enumerate(zip(values, columns, strict=True)):
        if column.tone != tone or value is None:
            continue
        # What failed or was tiny is still to be seen.
        y = min(_y(value, top), _TOP + _PLOT_H - 1)
        x = _LEFT + index * width + gap / 2
        parts.append(
            f"M{x:.1f} {_TOP + _PLOT_H}V{y:.1f}h{max(width - gap, 0.5):.1f}V{_TOP + _PLOT_H}z"
        )
    return h("path", class_=f"col {tone}", d="".join(parts)) if parts else None


def _line(series: Series, top: float) -> Html | None:
    if series.line is None:
        return None
    y = _y(series.line, top)
    return h("line", class_="limit", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y)


def _times(columns: Sequence[Column]) -> list[Html]:
    if not columns:
        return []
    y = _HEIGHT - 5
    found = [h("text", columns[0].time, class_="axis", x=_LEFT, y=y)]
    if len(columns) > 1:
        last = columns[-1].time
        found.append(h("text", last, class_="axis", x=_WIDTH - _RIGHT, y=y, text_anchor="end"))
    return found


def _y(value: float, top: float) -> float:
    return round(_TOP + _PLOT_H * (1 - min(value / top, 1.0)), 1)


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
