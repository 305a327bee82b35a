"""A batch: an id, a time, and the offset range of each input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SourceOffset = Any
"""The offset of an input: a JSON object such as ``{"<stream>": {"<writer>": end}}``.

Only the input knows its meaning. None stands for the beginning."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """The range that a batch takes from one input: after ``start`` up to ``end``."""

    start: SourceOffset
    end: SourceOffset


@dataclass(frozen=True, slots=True)
class InputLimit:
    """The limit of a batch for one input."""

    records: float | None
    """The limit in records, including fractions; None for no limit."""
    reason: str
    """The estimator's reason."""
    waiting_records: int = 0
    """What the input had beyond the batch when it was planned; 0 also where that is unknown.

    With what cannot be read yet.
    """


@dataclass(frozen=True, slots=True)
class Batch:
    """One run of the graph. ``sources`` are in the order of the program's inputs."""

    id: int
    time_ms: int
    sources: tuple[SourceRange, ...]
    plan: str = ""
    """That of OutputBatch."""
