"""A program as its streams know it: they import neither its context nor its graph.

StreamingContext is the Program, DStreamGraph its Graph.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

from pyspark import SparkContext

from penstock.clock import Clock
from penstock.conf import StreamingSettings
from penstock.streaming.core.operators import Operators


class Graph(Protocol):
    """The inputs, streams and outputs of a program."""

    batch_interval_ms: int
    inputs: list[Any]
    outputs: list[Any]
    operators: Operators
    is_kept: bool
    """Whether the graph is read back after a restart, so inputs must not depend on memory."""

    def add_input(self, stream: Any) -> None:
        """Add an input; its name must be unique."""

    def add_output(self, output: Any) -> None:
        """Add an output operation; its name must be unique."""

    def streams(self) -> Iterator[Any]:
        """Yield every stream of the graph once, each before its parents."""

    def times_between(self, after_ms: int, until_ms: int) -> list[int]:
        """Return the times of remembered batches with ``after_ms < time <= until_ms``."""


class Program(Protocol):
    """The part of a StreamingContext that streams use."""

    @property
    @abstractmethod
    def graph(self) -> Graph:
        """The program's graph."""

    @property
    @abstractmethod
    def sparkContext(self) -> SparkContext:
        """The SparkContext of the program."""

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The clock of the batches."""

    @property
    @abstractmethod
    def settings(self) -> StreamingSettings:
        """The settings of the program."""

    @abstractmethod
    def check_changeable(self, what: str) -> None:
        """Raise StreamingError when the program was started: it cannot change any more."""

    @abstractmethod
    def check_extensible(self, what: str) -> None:
        """Raise StreamingError if a graph checkpoint defines inputs, streams and outputs."""
