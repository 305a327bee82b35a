"""Operations on several streams, as methods of the context that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from pyspark import RDD, SparkContext

from penstock.errors import ConfigError
from penstock.streaming.operations.dstream import DStream, UnionDStream, transformed

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program


class CombinedStreams(ABC):
    """The part of a StreamingContext that makes one stream of several; base of the other parts.

    Parts know the whole only by what is declared here.
    """

    @property
    @abstractmethod
    def sparkContext(self) -> SparkContext:
        """Return the SparkContext of this program."""

    @property
    def _context(self) -> Program:
        return cast("Program", self)

    def transform(
        self, dstreams: Sequence[DStream], transformFunc: Callable[[list[RDD[Any]]], RDD[Any]]
    ) -> DStream:
        """Return the stream of ``transformFunc([rdd, ...])`` over one RDD of each stream."""
        if not dstreams:
            raise ConfigError(
                "no streams were given", operation="transform", hint="give at least one DStream"
            )
        return transformed(self._context, "transform", tuple(dstreams), _OfList(transformFunc))

    def union(self, *dstreams: DStream) -> DStream:
        """Return one stream with the records of all."""
        if not dstreams:
            raise ConfigError(
                "should have at least one DStream to union",
                operation="union",
                hint="give at least one DStream",
            )
        return dstreams[0] if len(dstreams) == 1 else UnionDStream(self._context, dstreams)


class _OfList:
    """Calls a function of a list of RDDs with RDDs as arguments; pickles as the function does."""

    def __init__(self, func: Callable[[list[RDD[Any]]], RDD[Any]]) -> None:
        self._func = func

    def __call__(self, *rdds: RDD[Any]) -> RDD[Any]:
        return self._func(list(rdds))
