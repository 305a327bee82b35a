"""Describes what a part of a program is made of, from the inputs on; the same in each process.

    updateStateByKey(add) of map(<lambda>) of flatMap(split) of tail-0

Invariant: an unchanged program has the same description under every Python and penstock. So it
has operations and names of the program's functions, and nothing of bytecode, memory, line numbers,
penstock's own functions or numbers that depend on the cluster. The detail has the constants and
names in the functions' code, and where inputs and outputs connect to.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import CodeType
from typing import Any

from penstock.checkpoint.unnamed_parts import Part
from penstock.driver.addresses import addresses, digest, is_own
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.operators import Operator
from penstock.streaming.inputs.input import InputDStream
from penstock.streaming.operations.outputs import OutputOperation

__all__ = ["describe_input", "describe_operator", "describe_output"]

_LONGEST = 300


def describe_input(stream: InputDStream) -> Part:
    """Return an input's part."""
    kind = type(stream).__name__
    receivers = sorted({type(each).__name__ for each in _receivers(stream)})
    made_of = f"{kind}({', '.join(receivers)})" if receivers else kind
    return Part(
        "input",
        stream.name,
        stream.name.rpartition("-")[0],
        made_of,
        digest(sorted(_addresses(stream).union(*map(_addresses, _receivers(stream))))),
    )


def describe_operator(operator: Operator, stream: BaseDStream | None) -> Part:
    """Return an operator's part, by its stream; None if no output uses it, or it has no state."""
    made_of = (operator.kind, "") if stream is None else _made_of(stream)
    return Part("operator", operator.name, operator.kind, *made_of)


def describe_output(output: OutputOperation) -> Part:
    """Return an output's part."""
    functions = list(_functions(output.func))
    made_of, detail = _made_of(output.parent)
    detail = digest([detail, *sorted(_addresses(output)), *_details(functions)])
    text = _bounded(f"{output.kind}{_named(functions)} of {made_of}")
    return Part("output", output.name, output.kind, text, detail)


def _made_of(stream: BaseDStream) -> tuple[str, str]:
    """Return what a stream is made of, and its detail; without recursion, graphs may be deep."""
    known: dict[int, tuple[str, str]] = {}
    waiting = [stream]
    while waiting:
        each = waiting[-1]
        missing = [parent for parent in each.parents if id(parent) not in known]
        if missing:
            waiting += missing
        else:
            known[id(waiting.pop())] = _combined(each, [known[id(p)] for p in each.parents])
    return known[id(stream)]


def _combined(stream: BaseDStream, parents: list[tuple[str, str]]) -> tuple[str, str]:
    if isinstance(stream, InputDStream):
        return stream.name, ""
    functions = [each for value in vars(stream).values() for each in _functions(value)]
    operator = getattr(stream, "operator", None)
    kind = operator.kind if isinstance(operator, Operator) else type(stream).__name__
    own = str(getattr(stream, "operation", kind)) + _named(functions)
    of = parents[0][0] if len(parents) == 1 else " and ".join(f"({text})" for text, _ in parents)
    width = str(getattr(stream, "_window_ms", ""))  # a slide may be the batch interval
    detail = digest([width, *_details(functions), *(detail for _, detail in parents)])
    return _bounded(f"{own} of {of}"), detail


def _bounded(text: str) -> str:
    """Return a text that is not too long to be kept, and as unique."""
    return text if len(text) <= _LONGEST else f"{text[:200]}... {digest([text])}"


# -- functions --


def _functions(value: Any) -> Iterator[Callable[..., Any]]:
    """Yield the program's own functions in what a stream or output has."""
    if isinstance(value, partial):
        for each in (value.func, *value.args, *value.keywords.values()):
            yield from _functions(each)
    elif callable(value) and not is_own(value):
        yield value


def _named(functions: Iterable[Callable[..., Any]]) -> str:
    names = sorted(str(getattr(each, "__name__", type(each).__name__)) for each in functions)
    return f"({', '.join(names)})" if names else ""


def _details(functions: Iterable[Callable[..., Any]]) -> list[str]:
    # Objects may answer to any name.
    codes = (getattr(each, "__code__", None) for each in functions)
    return sorted(
        digest(sorted({*_words(code), ""})) for code in codes if isinstance(code, CodeType)
    )


def _words(code: CodeType) -> Iterator[str]:
    """Yield the names and constants in a function's text, which no version of Python changes."""
    yield from code.co_names
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_SMALL_INT":  # of Python 3.14
            yield repr(each.arg)
        elif each.arg is not None and (each.opcode in dis.hasconst or each.opname == "KW_NAMES"):
            yield from _constants(code.co_consts[each.arg])
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _words(inner)


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, tuple | frozenset):
        for each in value:
            yield from _constants(each)
    elif isinstance(value, str | bytes | int | float) and not isinstance(value, bool):
        text = repr(value)
        yield "" if "<locals>" in text else text  # what Python 3.10 calls functions


def _receivers(stream: InputDStream) -> list[Any]:
    given = getattr(stream, "_given", None) or []
    return list(given) if isinstance(given, list | tuple) else [given]


def _addresses(part: Any) -> set[str]:
    return {*addresses(part, apart=(BaseDStream,))}
