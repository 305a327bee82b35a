"""What the parts of a StreamingContext that make streams know of the whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast

from pyspark import SparkContext

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.engine.graph import DStreamGraph


class ContextPart(ABC):
    """Base of the classes that StreamingContext is put together of."""

    graph: DStreamGraph

    @property
    @abstractmethod
    def sparkContext(self) -> SparkContext:
        """Return the SparkContext of this program."""

    @property
    def _context(self) -> StreamingContext:
        return cast("StreamingContext", self)
