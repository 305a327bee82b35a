"""Names of the operators with state; a restart finds the state by them."""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from penstock.errors import StreamingError
from penstock.model import check_name


def usual_name(kind: str, taken: Container[str], place: int) -> str:
    """Return the name by kind and place, or the next one that is not taken."""
    while f"{kind}-{place}" in taken:
        place += 1
    return f"{kind}-{place}"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator with state in the checkpoint location.

    ``kind`` is the operation's name. ``schema`` holds the parameters that must not change while its
    state is kept (JSON values, such as the number of partitions).
    """

    name: str
    kind: str
    schema: Mapping[str, object] = field(default_factory=dict)


class Operators:
    """The stateful operators of one graph, in the order in which the program creates them."""

    def __init__(self) -> None:
        self._by_name: dict[str, Operator] = {}
        self._token = secrets.token_hex(4)
        self._unnamed = 0
        self._usual: frozenset[str] = frozenset()  # names that were not given

    def add(self, kind: str, name: str | None, schema: Mapping[str, object]) -> Operator:
        """Register an operator; without a name it is called by its kind and place, for now.

        Its place is the number of operators without names before it. One that is given its name
        later takes the next place.

        Raises:
            ConfigError: the name is not a valid file name.
            StreamingError: another operator was given it.
        """
        place = sum(self._by_name[known].kind == kind for known in self._usual)
        usual = usual_name(kind, self._by_name, place)
        operator = Operator(check_name("operator", usual if name is None else name), kind, schema)
        if name is None:
            self._usual |= {usual}
        elif name in self._usual:
            other = self._by_name[name]
            self._rename(other, usual_name(other.kind, self._by_name, place))
        if operator.name in self._by_name:
            raise StreamingError(
                f"two operators are named {operator.name!r}",
                operation=kind,
                ids={"operator": operator.name},
                hint="give each stateful operator a different name (name=)",
            )
        self._by_name[operator.name] = operator
        return operator

    def is_given(self, operator: Operator) -> bool:
        """Whether the program gave the operator its name."""
        return operator.name not in self._usual

    def _rename(self, operator: Operator, name: str) -> None:
        """Give an operator another name that is not given. Nothing may know the one until now."""
        self._usual = self._usual - {operator.name} | {name}
        object.__setattr__(operator, "name", name)  # streams have the operator itself
        self._by_name = {each.name: each for each in self._by_name.values()}

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
        return list(self._by_name.values())
