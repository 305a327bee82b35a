"""The names of a program's parts: its operators with state, by which a restart finds the state."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import StreamingError
from penstock.model import check_name


class Part(Protocol):
    """An operator with state, or an output."""

    name: str
    kind: str
    """The operation's name."""
    is_named: bool
    """Whether the program gave it its name."""


def name_part(role: str, kind: str, name: str | None, others: Iterable[Part]) -> str:
    """Return the name of a new part; without a given one it is called by its kind and place.

    Its place is the number of such parts of its kind before it. If one of them has the given name,
    it takes the next place: nothing may know its name until the program starts.

    Raises:
        ConfigError: the name is not a valid file name.
    """
    taken = {other.name: other for other in others}
    if name is None:
        place = sum(other.kind == kind and not other.is_named for other in taken.values())
        return check_name(role, _usual_name(kind, taken, place))
    if check_name(role, name) in taken and not taken[name].is_named:
        taken[name].name = _usual_name(taken[name].kind, taken, 0)
    return name


def _usual_name(kind: str, taken: Container[str], place: int) -> str:
    while f"{kind}-{place}" in taken:
        place += 1
    return f"{kind}-{place}"


@dataclass(slots=True)
class Operator:
    """An operator with state in the checkpoint location: a ``Part``."""

    name: str
    kind: str
    is_named: bool = True


class Operators:
    """The stateful operators of one graph, in the order in which the program creates them."""

    def __init__(self) -> None:
        self._all: list[Operator] = []
        self._token = secrets.token_hex(4)
        self._unnamed = 0

    def add(self, kind: str, name: str | None) -> Operator:
        """Register an operator.

        Raises:
            ConfigError: the name is not a valid file name.
            StreamingError: another operator was given it.
        """
        given = name_part("operator", kind, name, self._all)
        if any(known.name == given for known in self._all):
            raise StreamingError(
                f"two operators are named {given!r}",
                operation=kind,
                ids={"operator": given},
                hint="give each stateful operator a different name (name=)",
            )
        operator = Operator(given, kind, is_named=name is not None)
        self._all.append(operator)
        return operator

    def unnamed(self, kind: str) -> Operator:
        """Return an operator that only this graph finds again when it is read back.

        A program that creates its graph anew does not find it, because its code may have changed.
        """
        self._unnamed += 1
        return Operator(f"_{self._token}-{self._unnamed}", kind)  # not a name that ``add`` accepts

    def is_abandoned(self, name: str) -> bool:
        """Whether that is the name of an unnamed operator of another graph."""
        return name.startswith("_") and not name.startswith(f"_{self._token}-")

    def all(self) -> list[Operator]:
        """Return all named operators, in the order in which they were created."""
        return list(self._all)
