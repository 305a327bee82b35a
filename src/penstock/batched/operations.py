"""What the streams' operations do with elements. Nothing here knows Spark.

An element is a value and the ranges that it was made of (``Refs``): those are in flight for as long
as an operation holds the element for a later one. Operations with a state have it passed in, and
can so run anywhere; it is lost with the program, as streamz' own is.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from penstock.kafka.offsets import KafkaRange

Refs = frozenset[KafkaRange]


class Place(IntEnum):
    """Where an operation runs; none runs before those that feed it."""

    RANGES = 0
    """In the tasks that read, one for each partition's range."""
    TASK = 1
    """In one task of the batch, which has the elements of all ranges in their order."""
    PROGRAM = 2
    """In the program's own process."""


class Element(NamedTuple):
    """A value, and what it was made of."""

    value: Any
    refs: Refs


class NoStart:
    """In the place of an accumulation's start: its first element is that."""


class Operation:
    """One operation; what it keeps from element to element is in ``state`` alone."""

    place: ClassVar[Place] = Place.RANGES

    def new_state(self) -> Any:
        """Return the state before the first element; made where the operation runs."""
        return None

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """Take in an element that came from the ``port``-th upstream; return what comes out."""
        raise NotImplementedError

    def finish(self, state: Any) -> Any:
        """Take in that the batch has no more elements here; return the state for the next batch."""
        return state

    def held(self, state: Any) -> Iterable[Element]:
        """Return the elements that wait in a state."""
        return ()


class Pass(Operation):
    """Elements as they are: sources, ``union`` and ``add_checkpoint``."""

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        return (element,)


class Gather(Pass):
    """What follows runs in the program's own process."""

    place = Place.PROGRAM


class Map(Operation):
    """A function of each value."""

    def __init__(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._func = func
        self._args = args
        self._kwargs = kwargs

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        return (Element(self._call(element.value), element.refs),)

    def _call(self, value: Any) -> Any:
        return self._func(value, *self._args, **self._kwargs)


class Starmap(Map):
    """A function that takes each value's items as its arguments."""

    def _call(self, value: Any) -> Any:
        return self._func(*value, *self._args, **self._kwargs)


class Filter(Map):
    """The values for which a function is true."""

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        return (element,) if self._call(element.value) else ()


class Sink(Map):
    """A function that is called with each value, which is then handed on as it is."""

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        self._call(element.value)
        return (element,)


class Flatten(Operation):
    """Each item of each value."""

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        refs = element.refs
        return (Element(item, refs) for item in element.value)


class Accumulate(Operation):
    """A function of what it returned last and of each value."""

    place = Place.TASK

    def __init__(
        self,
        func: Callable[..., Any],
        start: Any,
        returns_state: bool,
        kwargs: Mapping[str, Any],
    ) -> None:
        self._func = func
        self._start = start
        self._returns_state = returns_state
        self._kwargs = kwargs

    def new_state(self) -> Any:
        """See Operation."""
        return [] if self._start is NoStart else [self._start]

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        if not state:
            state.append(element.value)
            return (element,)
        result = self._func(state[0], element.value, **self._kwargs)
        state[0], out = result if self._returns_state else (result, result)
        return (Element(out, element.refs),)


class Partition(Operation):
    """Tuples of ``n`` values; those that are fewer wait for the next ones."""

    place = Place.TASK

    def __init__(self, n: int) -> None:
        self._n = n

    def new_state(self) -> Any:
        """See Operation."""
        return []

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        state.append(element)
        if len(state) < self._n:
            return ()
        group = _joined(state)
        state.clear()
        return (group,)

    def held(self, state: Any) -> Iterable[Element]:
        """See Operation."""
        return tuple(state)


class Zip(Operation):
    """Tuples of one value of each upstream; the first ones wait for their others."""

    place = Place.TASK

    def __init__(self, upstreams: int) -> None:
        self._upstreams = upstreams

    def new_state(self) -> Any:
        """See Operation."""
        return [deque() for _ in range(self._upstreams)]

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        state[port].append(element)
        return (_joined([each.popleft() for each in state]),) if all(state) else ()

    def held(self, state: Any) -> Iterator[Element]:
        """See Operation."""
        return (element for each in state for element in each)


class CombineLatest(Zip):
    """With each value a tuple of it and of the others' newest, once all have one."""

    def new_state(self) -> Any:
        """See Operation."""
        return [[] for _ in range(self._upstreams)]

    def update(self, state: Any, port: int, element: Element) -> Iterable[Element]:
        """See Operation."""
        state[port] = [element]
        return (_joined([each[0] for each in state]),) if all(state) else ()


def pick(value: Any, which: Any) -> Any:
    """Return an item of a value, or a tuple of several."""
    return tuple(value[one] for one in which) if isinstance(which, list) else value[which]


def _joined(elements: list[Element]) -> Element:
    refs = frozenset().union(*(element.refs for element in elements))
    return Element(tuple(map(operator.attrgetter("value"), elements)), refs)
