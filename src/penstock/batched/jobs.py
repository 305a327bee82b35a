"""Runs a batch's graph on Spark: a task for each range, and one task for what needs their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark import SparkContext

from penstock.batched.exactly_once import Writing
from penstock.batched.graph import Arrival, Graph, States, run_place
from penstock.batched.messages import get_message_batch
from penstock.batched.operations import Element, Place
from penstock.kafka.offsets import KafkaRange

__all__ = ["Reading", "Work", "run_on_spark"]


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
    writing: Writing | None = None,
) -> tuple[list[Arrival], States]:
    """Run what runs on Spark; return what arrives in the program, and the new states of the task.

    Args:
        sc: the context.
        graph: the program's operations.
        readings: of the sources, by node.
        works: the batch.
        states: those that the last batch returned.
        writing: of the program's exactly-once sinks, if it has any.
    """
    # The ranges alone are data, which Spark may put into files; settings go with the function.
    tasks = list(enumerate(works))
    run = _RunRanges(graph, readings, writing)
    ranges = sc.parallelize(tasks, len(tasks)).mapPartitions(run)
    if writing is not None:
        others = [index for index, _ in tasks if index not in writing.done]
        for indexes in (sorted(writing.done), others):
            if indexes:
                sc.runJob(ranges, list, indexes)
        return [], {}
    if not graph.at(Place.TASK):
        return [arrival for _, arrivals in sorted(ranges.collect()) for arrival in arrivals], {}
    ((arrivals, states),) = (
        ranges.coalesce(1, shuffle=True).mapPartitions(_RunTask(graph, states)).collect()
    )
    return arrivals, states


class _RunRanges:
    """Task: ranges to what arrives at later places. A class, so that it pickles by name."""

    def __init__(
        self, graph: Graph, readings: Mapping[int, Reading], writing: Writing | None
    ) -> None:
        self._graph = graph
        self._readings = readings
        self._sinks = {} if writing is None else writing.sinks

    def __call__(self, tasks: Iterable[tuple[int, Work]]) -> Iterator[tuple[int, list[Arrival]]]:
        for index, work in tasks:
            wanted, reading = work.range, self._readings[work.node]
            values = get_message_batch(
                reading.settings,
                wanted.topic,
                wanted.partition,
                wanted.start_offset,
                wanted.end_offset - 1,
                reading.checkpoint_path,
                keys=reading.keys,
            )
            source = Arrival(work.node, 0, Element(values, frozenset((wanted,))))
            sinks = {node: (*sink, index) for node, sink in self._sinks.items()}
            yield index, run_place(self._graph, Place.RANGES, [source], {}, sinks)[0]


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
