"""Which part of a changed program a name belongs to that no one gave. Pure.

An input, stateful operator or output without ``name=`` is called by its kind and place
(``updateStateByKey-0``), and another place may be another part. So what a part is made of decides,
in four steps, each among those that are left:

    made of        the same, and the same detail (addresses, code): as many as before, in order
    made of        the same, another detail: one before, one now
    own operation  with the same functions, over other streams: one before, one now
    kind           the same: one before, one now (none may be dropped, so it is this one)

Where a step finds more before or now, the choice is open, and the start is refused; so it is where
the first two steps find a part that has a new name of its own. A part that is left now is new, and
gets a name that none has. One that was described before and is gone keeps its name: it may be back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from penstock.checkpoint.unnamed_parts import Part
from penstock.errors import RecoveryMismatchError
from penstock.streaming.core.operators import usual_name

__all__ = ["is_usual", "settle"]

_STEPS: tuple[Callable[[Part], object], ...] = (
    lambda part: (part.made_of, part.detail),
    lambda part: part.made_of,
    lambda part: part.made_of.partition(" of ")[0],
    lambda part: part.kind,
)


def is_usual(name: str) -> bool:
    """Whether a name is of the form that parts without one get."""
    return re.fullmatch(r"[A-Za-z_]+-\d+", name) is not None


def settle(before: Sequence[Part], now: Sequence[Part], given: Sequence[Part]) -> list[str]:
    """Return the names of the parts without one, all of one role.

    Args:
        before: the parts that were described, some with given names of the usual form.
        now: the parts of the program without names, called by kind and place.
        given: those that have names of their own.

    Raises:
        RecoveryMismatchError: the choice is open.
    """
    given_names = {part.name for part in given}
    known = {part.name for part in before}
    old = [part for part in before if part.name not in given_names]
    renamed = [part for part in given if part.name not in known]
    new, found = list(now), dict[str, str]()
    for step, key in enumerate(_STEPS):
        for value in dict.fromkeys(map(key, old)):
            names = [part for part in old if key(part) == value]
            parts = [part for part in new if key(part) == value]
            others = [part for part in renamed if key(part) == value] if step < 2 else []
            if not parts:
                continue
            if len(names) != len(parts) or others or (step and len(names) > 1):
                raise _open(names, [*parts, *others])
            found |= {part.name: as_.name for part, as_ in zip(parts, names, strict=True)}
            old = [part for part in old if part not in names]
            new = [part for part in new if part not in parts]
    taken = {*given_names, *known}
    for part in new:
        kind, _, place = part.name.rpartition("-")
        found[part.name] = usual_name(kind, taken, int(place))
        taken.add(found[part.name])
    return [found[part.name] for part in now]


def _open(names: Sequence[Part], candidates: Sequence[Part]) -> RecoveryMismatchError:
    first = names[0]
    what = "; or ".join(dict.fromkeys(part.made_of for part in candidates))
    return RecoveryMismatchError(
        f"the program has changed, and it is open what continues as {first.role} {first.name!r}, "
        f"which was: {first.made_of}. It may be: {what}",
        operation="recover",
        ids={first.role: first.name},
        hint=f"give the {first.role} that continues name={first.name!r}, and the others names of "
        "their own",
    )
