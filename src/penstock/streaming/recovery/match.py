"""Checks whether a program matches its checkpoint location. Pure: recorded and present names.

Each entry of the offset log records, in its conf, the names of the inputs in the order of their
offsets, the operators with state, and the outputs. A changed program finds its offsets by these
names:

    recorded     in the program   what happens
    -----------  ---------------  ----------------------------------------------------------------
    input        yes              continues at its offset, at any index in the program
    input        no               refused: its records would be dropped silently
    -            input            starts at its first offset (penstock.checkpoint.first_offsets)
    operator     yes, the same    continues with its state
    operator     yes, other kind  refused: its state has another meaning
    operator     no               refused: its state would be dropped silently
    -            operator         starts without state
    output       no               ends, as any code that is removed; an exactly-once output is
                                  refused: under another name its sink would write batches that
                                  run again a second time
    -            output           starts with the next batch, and those that run again

Inputs, operators and outputs that a sink is told of are found by their names. One without a name
(``name=``) is called by its kind and place, ``tail-0``, and another place may be another part. So
the start is refused where a kind has other unnamed parts than were recorded, and some were.

A first offset of an input that no entry records was left by a program that ended before a batch was
planned with that input. It stays valid for an input of that name, whenever the program has one
again, so that no records since then are skipped. A program without one starts, with a warning: no
batch took records of that input.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from penstock.errors import RecoveryMismatchError
from penstock.streaming.core.operators import Operator

_INPUTS = "spark.penstock.inputs"
_OPERATORS = "spark.penstock.operators"
_OUTPUTS = "spark.penstock.outputs"
_TOLD = "spark.penstock.toldOutputs"


def describe_program(
    inputs: Iterable[str],
    operators: Iterable[Operator],
    outputs: Mapping[str, bool],
    told: Iterable[str],
) -> dict[str, str]:
    """Return the entries that record a program in the conf of its batches.

    ``outputs`` are names, with whether they write exactly once; sinks are ``told`` some of them.
    """
    plain = [{"name": o.name, "kind": o.kind} for o in operators]
    return {
        _INPUTS: _to_text(list(inputs)),
        _OPERATORS: _to_text(plain),
        _OUTPUTS: _to_text(dict(outputs)),
        _TOLD: _to_text(list(told)),
    }


def recorded_inputs(conf: Mapping[str, str]) -> list[str]:
    """Return the names of the inputs in the order of their offsets.

    Raises:
        RecoveryMismatchError: they are not recorded.
    """
    if _INPUTS not in conf:
        raise RecoveryMismatchError(
            "the offset log names no inputs: no DStream program of penstock has written it",
            operation="recover",
            hint="give the program a checkpoint location of its own",
        )
    recorded: list[str] = json.loads(conf[_INPUTS])
    return recorded


def check_unnamed(
    conf: Mapping[str, str], role: str, present: Collection[str], unnamed: Collection[str]
) -> None:
    """Check that the parts without names of their own are those that were recorded.

    Args:
        conf: that of the newest batch.
        role: "input", "operator" or "output".
        present: the names of the program's parts in this role.
        unnamed: those of them that are called by kind and place.

    Raises:
        RecoveryMismatchError: a kind has other ones than were recorded.
    """
    given = set(present) - set(unnamed)
    before, now = _by_kind(set(_recorded(conf, role)) - given), _by_kind(unnamed)
    for kind in before.keys() & now.keys():
        if before[kind] != now[kind]:
            raise RecoveryMismatchError(
                f"the program has changed, and parts without names are found by kind and place: "
                f"the checkpoint location has {role}s {_listed(before)}, the program has "
                f"{_listed(now)}",
                operation="recover",
                ids={role: before[kind][0]},
                hint=f"give the {role} that continues name={before[kind][0]!r} (and so for each), "
                "and the others names of their own",
            )


def _recorded(conf: Mapping[str, str], role: str) -> list[str]:
    if role == "operator":
        return [operator["name"] for operator in json.loads(conf.get(_OPERATORS, "[]"))]
    recorded: list[str] = json.loads(conf.get(_INPUTS if role == "input" else _TOLD, "[]"))
    return recorded


def _by_kind(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that are made of kind and place, by kind."""
    kinds = defaultdict(list)
    for name in sorted(names):
        if re.fullmatch(r"[A-Za-z_]+-\d+", name):
            kinds[name.rpartition("-")[0]].append(name)
    return kinds


def _listed(kinds: Mapping[str, Iterable[str]]) -> str:
    return ", ".join(name for names in kinds.values() for name in names)


def places_of_inputs(recorded: Sequence[str], inputs: Sequence[str]) -> tuple[int | None, ...]:
    """Return, for each input of the program, the index of its offset; None for a new one.

    Raises:
        RecoveryMismatchError: the program lacks an input.
    """
    missing = [name for name in recorded if name not in inputs]
    if missing:
        raise RecoveryMismatchError(
            f"the checkpoint location holds offsets of input {missing[0]!r}, which is not in the "
            f"program (its inputs: {', '.join(map(repr, inputs)) or 'none'})",
            operation="recover",
            ids={"stream": missing[0]},
            hint=f"if an input was renamed, give it name={missing[0]!r}; to drop it, start with a "
            "new checkpoint location",
        )
    return tuple(recorded.index(name) if name in recorded else None for name in inputs)


def leftover_first_offsets(settled: Iterable[str], inputs: Sequence[str]) -> list[str]:
    """Return of which inputs there are first offsets, and no more, that the program lacks.

    It has all that are recorded (``places_of_inputs``), or it would not start.
    """
    return sorted(set(settled) - set(inputs))


def check_operators(conf: Mapping[str, str], operators: Iterable[Operator]) -> None:
    """Check that the program has every operator that was recorded.

    Raises:
        RecoveryMismatchError: one is missing, or has another kind.
    """
    present = {operator.name: operator for operator in operators}
    for recorded in json.loads(conf.get(_OPERATORS, "[]")):
        name, kind = recorded["name"], recorded["kind"]
        if name not in present:
            raise _refusal(
                name,
                f"the checkpoint location holds the state of {kind} {name!r}, which is not in the "
                f"program (its stateful operators: {', '.join(map(repr, present)) or 'none'})",
                f"give the operator that continues with this state name={name!r}",
            )
        operator = present[name]
        if operator.kind != kind:
            raise _refusal(
                name,
                f"operator {name!r} is a {operator.kind} now, and its state is that of a {kind}",
                f"give the {operator.kind} a different name (name=), and keep the {kind}",
            )


def check_outputs(conf: Mapping[str, str], outputs: Mapping[str, bool]) -> None:
    """Check that the program has every exactly-once output that was recorded.

    Raises:
        RecoveryMismatchError: it lacks one, or has another kind of output under its name.
    """
    present = [name for name, exactly_once in outputs.items() if exactly_once]
    for name, exactly_once in _recorded_outputs(conf).items():
        if exactly_once and name not in present:
            raise RecoveryMismatchError(
                f"the checkpoint location was used with exactly-once output {name!r}, which is "
                f"not in the program (its exactly-once outputs: "
                f"{', '.join(map(repr, present)) or 'none'}); under another name its sink would "
                "write batches that run again a second time",
                operation="recover",
                ids={"output": name},
                hint=f"give the output that continues name={name!r}; to end it, let the program "
                "without it begin with a new checkpoint location",
            )


def written_before(
    conf: Mapping[str, str], rerun: Collection[int], output: str, exactly_once: bool
) -> Collection[int]:
    """Return which of the batches that run again may be written to an output already.

    None if the output was not in the program, or did not write exactly once and does now.
    """
    return rerun if _recorded_outputs(conf).get(output, -1) >= exactly_once else ()


def _recorded_outputs(conf: Mapping[str, str]) -> dict[str, bool]:
    recorded: dict[str, bool] = json.loads(conf.get(_OUTPUTS, "{}"))
    return recorded


def _refusal(name: str, message: str, fix: str) -> RecoveryMismatchError:
    return RecoveryMismatchError(
        message,
        operation="recover",
        ids={"operator": name},
        hint=f"{fix}; to drop the state, start with a new checkpoint location",
    )


def _to_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
