"""A program's operations, and how elements go through them. Nothing here knows Spark.

Elements go depth first, as in streamz: each through all that follows before the next one. What runs
at a later place is handed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.batched.operations import Element, Operation, Pass, Place, Refs

States = dict[int, Any]
"""The states of the operations of a place, by node."""


class Arrival(NamedTuple):
    """An element at the ``port``-th input of a node."""

    node: int
    port: int
    element: Element


@dataclass(frozen=True, slots=True)
class Node:
    """An operation, what it is fed by (nodes by their numbers), and where it runs."""

    operation: Operation
    upstreams: tuple[int, ...]
    place: Place


class Graph:
    """Nodes by their numbers; a node is added after those that feed it. Pickles to tasks."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes = list(nodes)

    def add(self, operation: Operation, upstreams: tuple[int, ...] = ()) -> int:
        """Add a node; return its number."""
        place = max([operation.place, *(self.nodes[each].place for each in upstreams)])
        self.nodes.append(Node(operation, upstreams, place))
        return len(self.nodes) - 1

    def without(self, place: Place) -> Graph:
        """Return this graph without what runs at a place, to be sent elsewhere."""
        nodes = self.nodes
        return Graph(n if n.place is not place else replace(n, operation=Pass()) for n in nodes)

    def at(self, place: Place) -> list[int]:
        """Return the nodes that run at a place."""
        return [number for number, node in enumerate(self.nodes) if node.place is place]


def run_place(
    graph: Graph,
    place: Place,
    arrivals: Iterable[Arrival],
    states: Mapping[int, Any],
) -> tuple[list[Arrival], States]:
    """Run a place's part of a batch; return what arrives at later places, and the new states.

    Args:
        graph: the program's operations.
        place: the place where these nodes run.
        arrivals: the elements.
        states: of the nodes.
    """
    numbers = graph.at(place)
    live = {
        number: state
        if (state := states.get(number)) is not None
        else graph.nodes[number].operation.new_state()
        for number in numbers
    }
    handed_on: list[Arrival] = []
    push = _pushes(graph, place, live, handed_on.append)
    for arrival in arrivals:
        push[arrival.node](arrival.port, arrival.element)
    return handed_on, {n: graph.nodes[n].operation.finish(live[n]) for n in numbers}


def held(graph: Graph, states: Mapping[int, Any]) -> Refs:
    """Return the ranges of the elements that wait in states."""
    return frozenset(
        ref
        for number, state in states.items()
        if state is not None
        for element in graph.nodes[number].operation.held(state)
        for ref in element.refs
    )


_Push = Callable[[int, Element], None]


def _pushes(
    graph: Graph, place: Place, states: States, hand_on: Callable[[Arrival], None]
) -> dict[int, _Push]:
    """Return what takes an element in at each node that a place's elements may reach."""
    pushes: dict[int, _Push] = {}
    for number in reversed(range(len(graph.nodes))):  # downstream first
        node = graph.nodes[number]
        if node.place > place:
            pushes[number] = _handing_on(number, hand_on)
        elif node.place is place:
            down = [
                (pushes[n], port)
                for n, each in enumerate(graph.nodes)
                for port, up in enumerate(each.upstreams)
                if up == number
            ]
            pushes[number] = _running(node.operation, states[number], down)
    # An element of an earlier place arrives as it was handed on: at its node and port.
    return pushes


def _handing_on(number: int, hand_on: Callable[[Arrival], None]) -> _Push:
    return lambda port, element: hand_on(Arrival(number, port, element))


def _running(operation: Operation, state: Any, down: list[tuple[_Push, int]]) -> _Push:
    update = operation.update

    def push(port: int, element: Element) -> None:
        for out in update(state, port, element):
            for next_push, next_port in down:
                next_push(next_port, out)

    return push
