"""A batch: an id, a time, and for each input the offsets between which its records lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Batch", "InputLimit", "OutputBatch", "SourceOffset", "SourceRange"]

SourceOffset = Any
"""How far an input has been read: a JSON object such as ``{"<stream>": {"<writer>": end}}``.

Only the input knows its meaning. None stands for the beginning."""


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What a batch takes of one input: everything after ``start`` up to ``end``."""

    start: SourceOffset
    end: SourceOffset


@dataclass(frozen=True, slots=True)
class InputLimit:
    """How much a batch was allowed to take of one input."""

    records: float | None
    """At most so many records, fractions included; None for no limit."""
    reason: str
    """Why, in the estimator's words."""


@dataclass(frozen=True, slots=True)
class OutputBatch:
    """One batch of one output: what a sink remembers to write it once, however often it runs.

    It is the same whenever the batch runs, in whatever run, and no other batch's.
    """

    location_id: str
    """The checkpoint location's id."""
    output: str
    """The output's name."""
    batch_id: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One run of the graph. ``sources`` stand in the order of the program's inputs."""

    id: int
    time_ms: int
    sources: tuple[SourceRange, ...]
