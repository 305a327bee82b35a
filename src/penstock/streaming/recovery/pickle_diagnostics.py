"""Finds the object in a graph that cannot be pickled, and names it in terms of the program.

Used only after pickling failed: it descends from an operation to its functions, and from those to
the objects they hold, always into the part that fails, until no smaller part fails.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import RDD, Accumulator, Broadcast, SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.streaming.core.base import BaseDStream
from penstock.streaming.inputs.sources import StreamSources

if TYPE_CHECKING:
    from penstock.streaming.core.program import Graph

_Part = tuple[str, Any]
_CanPickle = Callable[[object], bool]

_WHOLE = (Accumulator, Broadcast, DataFrame, RDD, SparkContext, SparkSession, StreamSources)
"""Classes that the user knows by name; their internals are not reported."""


@dataclass(frozen=True, slots=True)
class PickleDiagnosis:
    """``operation``: such as map. ``variable``: the path to the object. ``kind``: its type."""

    operation: str
    variable: str
    kind: str


def diagnose_pickling(graph: Graph, can_pickle: _CanPickle) -> PickleDiagnosis | None:
    """Return the first object in a graph for which ``can_pickle`` is false, None without one."""
    for operation, owner in _operations(graph):
        for name, value in owner.items():
            if not can_pickle(value):
                return _descend(operation, _first_step(name, value), value, can_pickle)
    return None


def _operations(graph: Graph) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each operation's name with the objects it holds besides other streams."""
    for stream in reversed(list(graph.streams())):
        name = getattr(stream, "name", None)
        operation = getattr(stream, "operation", None) or type(stream).__name__
        held = {k: v for k, v in stream.__getstate__().items() if not isinstance(v, BaseDStream)}
        yield (f"input {name}" if name else operation), held
    for output in graph.outputs:
        yield output.kind, {"func": output.func}


def _first_step(attribute: str, value: object) -> list[str]:
    """Return the first part of the path to an object: functions have their own names."""
    return [] if callable(value) else [attribute.strip("_")]


def _descend(
    operation: str, path: list[str], value: Any, can_pickle: _CanPickle
) -> PickleDiagnosis:
    seen: set[int] = set()
    while id(value) not in seen and not isinstance(value, _WHOLE):
        seen.add(id(value))
        path = path + _own_name(value)
        for name, part in _parts(value):
            if not can_pickle(part):
                path, value = [*path, name] if name else path, part
                break
    return PickleDiagnosis(operation, ", ".join(path) or "its function", _kind(value))


def _own_name(value: Any) -> list[str]:
    if isinstance(value, types.MethodType):
        return [f"method {value.__qualname__}"]
    if isinstance(value, types.FunctionType):
        code = value.__code__
        return [f"function {value.__name__} ({code.co_filename}:{code.co_firstlineno})"]
    return []


def _kind(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return "a function"
    kind = value if isinstance(value, type) else type(value)
    return f"{'the class' if kind is value else 'a'} {kind.__module__}.{kind.__qualname__}"


# -- the parts of a value, each with its name; an empty name if the user has none for it --


def _parts(value: Any) -> Iterable[_Part]:
    if isinstance(value, partial):
        return _parts_of_partial(value)
    if isinstance(value, types.MethodType):
        return [("its object", value.__self__), ("", value.__func__)]
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, Mapping):
        return [(f"key {key!r}", part) for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"item {number}", part) for number, part in enumerate(value)]
    return _parts_of_object(value)


def _parts_of_partial(value: partial[Any]) -> Iterator[_Part]:
    yield "", value.func
    for number, part in enumerate(value.args):
        yield ("" if callable(part) else f"argument {number}"), part
    for name, part in value.keywords.items():
        yield ("" if callable(part) else f"argument {name!r}"), part


def _parts_of_function(func: types.FunctionType) -> Iterator[_Part]:
    for number, part in enumerate(func.__defaults__ or ()):
        yield f"default argument {number}", part
    for name, part in (func.__kwdefaults__ or {}).items():
        yield f"default argument {name!r}", part
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        try:
            yield f"closure variable {name!r}", cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for name in sorted(_names(func.__code__)):
        if name in func.__globals__:
            yield f"global {name!r}", func.__globals__[name]


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function's code, including nested functions, reads."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _parts_of_object(value: Any) -> Iterator[_Part]:
    for name, part in getattr(value, "__dict__", {}).items():
        yield f"attribute {name!r}", part
    if not isinstance(value, type):
        yield "", type(value)
