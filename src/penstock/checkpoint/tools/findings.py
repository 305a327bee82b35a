"""What ``validate`` finds. Plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "warning", "error"]
"""error: the query does not start, or loses or repeats data. warning: it starts, and something is
not as Spark leaves it. note: harmless."""

_ORDER: tuple[Severity, ...] = ("note", "warning", "error")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    severity: Severity
    path: str
    """The file that is damaged or missing, in the location."""
    what: str
    """What is wrong."""
    meaning: str
    """What follows for the query."""
    fix: str
    """What to do."""


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity; None when there are no findings."""
    found = {finding.severity for finding in findings}
    return max(found, key=_ORDER.index, default=None)
