"""The figures of a benchmark: a table for people, one line of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Metric", "report"]


@dataclass(frozen=True)
class Metric:
    """One comparison.

    ``peer`` is None when the peer cannot be had. ``target`` is the ratio to reach, None where none
    was set. The ratio is such that more is better: ours to peer for rates, peer to ours where
    ``less_is_better`` (times, growth).
    """

    name: str
    unit: str
    ours: float
    peer: float | None
    target: float | None = None
    less_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer, None without a peer."""
        if self.peer is None:
            return None
        good, base = (self.peer, self.ours) if self.less_is_better else (self.ours, self.peer)
        return good / base if base else None

    @property
    def verdict(self) -> str:
        """What the target says of the ratio."""
        if self.peer is None:
            return "peer absent"
        if self.target is None or self.ratio is None:
            return ""
        return "met" if self.ratio >= self.target else "MISSED"

    def to_json(self) -> dict[str, Any]:
        """Return the form of the JSON line."""
        return {
            "name": self.name,
            "ours": _rounded(self.ours),
            "peer": _rounded(self.peer),
            "ratio": _rounded(self.ratio),
            "target": self.target,
            "unit": self.unit,
        }


def report(bench: str, metrics: Sequence[Metric], *, as_json: bool) -> None:
    """Print the table and, where asked for, the JSON line, which is then the last line."""
    rows = [("metric", "ours", "peer", "unit", "ratio", "target", "")]
    rows += [
        (
            metric.name,
            _shown(metric.ours),
            _shown(metric.peer),
            metric.unit,
            _shown(metric.ratio),
            _shown(metric.target),
            metric.verdict,
        )
        for metric in metrics
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    if as_json:
        print(json.dumps({"bench": bench, "metrics": [metric.to_json() for metric in metrics]}))


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
