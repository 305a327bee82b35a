"""Runs a batch's graph on Spark: a task for each range, and one task for what needs their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark import SparkContext

from penstock.batched.graph import Arrival, Graph, States, run_place
from penstock.batched.messages import get_message_batch
from penstock.batched.operations import Element, Place
from penstock.journal.spark import empty_partitions
from penstock.kafka.offsets import KafkaRange
from penstock.workers import freeze_imports


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source's ranges are read."""

    settings: Mapping[str, Any]
    keys: bool
    checkpoint_path: str | None


class Work(NamedTuple):
    """A range that a batch takes, for a source by its node."""

    node: int
    range: KafkaRange


def run_on_spark(
    sc: SparkContext,
    graph: Graph,
    readings: Mapping[int, Reading],
    works: Iterable[Work],
    states: States,
) -> tuple[list[Arrival], States]:
    """Run what runs on Spark; return what arrives in the program, and the new states of the task.

    Args:
        sc: the context.
        graph: the program's operations.
        readings: of the sources, by node.
        works: the batch.
        states: those that the last batch returned.
    """
    works = tuple(works)
    run = _RunRanges(graph, readings, works)
    ranges = empty_partitions(sc, len(works)).mapPartitionsWithIndex(run)
    if not graph.at(Place.TASK):
        return [arrival for _, arrivals in ranges.collect() for arrival in arrivals], {}
    ((arrivals, states),) = (
        ranges.coalesce(1, shuffle=True).mapPartitions(_RunTask(graph, states)).collect()
    )
    return arrivals, states


class _RunRanges:
    """Task: a range, by its number, to what arrives at later places. A class: pickles by name."""

    def __init__(
        self, graph: Graph, readings: Mapping[int, Reading], works: Sequence[Work]
    ) -> None:
        self._graph = graph
        self._readings = readings
        self._works = works

    def __call__(self, index: int, nothing: Iterable[Any]) -> Iterator[tuple[int, list[Arrival]]]:
        assert not list(nothing)  # a worker whose input was read to its end is used again
        freeze_imports()
        node, wanted = self._works[index]
        reading = self._readings[node]
        values = get_message_batch(
            reading.settings,
            wanted.topic,
            wanted.partition,
            wanted.start_offset,
            wanted.end_offset - 1,
            reading.checkpoint_path,
            keys=reading.keys,
        )
        source = Arrival(node, 0, Element(values, frozenset((wanted,))))
        yield index, run_place(self._graph, Place.RANGES, [source], {})[0]


class _RunTask:
    """Task: all that arrived from the ranges, in their order, to what arrives in the program."""

    def __init__(self, graph: Graph, states: States) -> None:
        self._graph = graph
        self._states = states

    def __call__(
        self, parts: Iterable[tuple[int, list[Arrival]]]
    ) -> Iterator[tuple[list[Arrival], States]]:
        early: list[Arrival] = []
        late: list[Arrival] = []
        for _, arrivals in sorted(parts, key=lambda part: part[0]):
            for arrival in arrivals:
                place = self._graph.nodes[arrival.node].place
                (early if place is Place.TASK else late).append(arrival)
        handed_on, states = run_place(self._graph, Place.TASK, early, self._states)
        yield late + handed_on, states
