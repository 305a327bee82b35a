"""Settles how the parts of a program that have no names are called, before anything uses a name.

Source of the rules: penstock.streaming.recovery.unnamed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from penstock.checkpoint.unnamed_parts import Part, UnnamedParts
from penstock.errors import RecoveryMismatchError
from penstock.storage import Storage
from penstock.streaming.core.operators import Operator, usual_name
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.recovery.made_of import (
    describe_input,
    describe_operator,
    describe_output,
)
from penstock.streaming.recovery.unnamed import is_usual, settle

__all__ = ["settle_names"]

_log = logging.getLogger(__name__)


def settle_names(graph: DStreamGraph, storage: Storage) -> Callable[[], None]:
    """Name the graph's operators and outputs as the location does.

    Returns:
        What makes it durable which part each name belongs to; to be called before anything is
        created under a name.

    Raises:
        RecoveryMismatchError: the program has changed so that more than one part may be meant.
        LogFormatError: what the location has of it is damaged.
    """
    parts = UnnamedParts(storage)
    before = parts.newest()
    now = [
        *_inputs(graph, [part for part in before if part.role == "input"]),
        *_operators(graph, [part for part in before if part.role == "operator"]),
        *_outputs(graph, [part for part in before if part.role == "output"]),
    ]
    # A sink may forget an output that is gone; files of the others stay under their names.
    kept = [part for part in before if part.role != "output"]
    known = {(part.role, part.name): part for part in (*kept, *now)}
    described = [each for each in known.values() if is_usual(each.name)]
    return partial(parts.replace, described)


def _inputs(graph: DStreamGraph, before: Sequence[Part]) -> list[Part]:
    parts = [describe_input(stream) for stream in graph.inputs]
    given = [part for part, each in zip(parts, graph.inputs, strict=True) if each.is_named]
    now = [part for part in parts if part not in given]
    names = settle(before, now, given)
    moved = [(name, part) for name, part in zip(names, now, strict=True) if part.name != name]
    if moved:  # receivers, their files and the program know an input by its name already
        known = {part.name for part in before}
        name, part = min(moved, key=lambda each: each[0] not in known)
        raise RecoveryMismatchError(
            f"the program has changed: input {name!r} of the checkpoint location is the one that "
            f"would be called {part.name!r} now, by its place",
            operation="recover",
            ids={"stream": name},
            hint=f"give it name={name!r}, and the inputs before it names of their own",
        )
    return parts


def _operators(graph: DStreamGraph, before: Sequence[Part]) -> list[Part]:
    operators = graph.operators.all()
    pairs = [(getattr(stream, "operator", None), stream) for stream in graph.streams()]
    made = {each.name: stream for each, stream in pairs if isinstance(each, Operator)}
    parts = [describe_operator(each, made.get(each.name)) for each in operators]
    given = [p for p, each in zip(parts, operators, strict=True) if graph.operators.is_given(each)]
    now = [part for part in parts if part not in given]
    names = settle(before, now, given)
    graph.operators.rename(dict(zip((part.name for part in now), names, strict=True)))
    unnamed = sorted(set(names) - {part.name for part in before})
    if unnamed:
        _log.warning(
            "Stateful operators without names of their own: %s. A restart finds their state by "
            "what they are made of, and a change of the program that leaves it open is refused. "
            "To be independent of that, give each this name (name=...)",
            ", ".join(unnamed),
        )
    return [*given, *map(_renamed, now, names)]


def _outputs(graph: DStreamGraph, before: Sequence[Part]) -> list[Part]:
    known = [each for each in graph.outputs if each.is_known_by_name]
    parts = [describe_output(each) for each in known]
    given = [part for part, each in zip(parts, known, strict=True) if each.is_named]
    now = [part for part in parts if part not in given]
    names = settle(before, now, given)
    for each, name in zip((each for each in known if not each.is_named), names, strict=True):
        each.name = name
    others = [each for each in graph.outputs if not (each.is_named or each.is_known_by_name)]
    taken = {each.name for each in graph.outputs if each not in others}
    for each in others:
        each.name = usual_name(each.kind, taken, int(each.name.rpartition("-")[2]))
        taken.add(each.name)
    return [*given, *map(_renamed, now, names)]


def _renamed(part: Part, name: str) -> Part:
    return replace(part, name=name)
