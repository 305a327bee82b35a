"""Which receivers of a list had which place: positions are found by the place.

A receiver of a list is called by its place, ``r0``, ``r1``, ..., and continues at the position of
that name. The stream's journal holds what each was, in ``<stream>/receivers/_places`` (JSON): its
``repr``, or its class if that has none of its own. A list is refused that has another class in a
place, or in whose place is what had another one before. Receivers may be added at the end and left
out there, and be made with other arguments.

Invariant: what is in a place is durable before a receiver is started under its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from penstock.errors import NotFoundError, RecoveryMismatchError
from penstock.journal import JournalStream
from penstock.receivers import Receiver


def check_places(stream: JournalStream, receivers: Mapping[str, Receiver]) -> None:
    """Check that no receiver, by its name, would continue at the position of another one.

    Raises:
        RecoveryMismatchError: one would.
        StorageError: the places cannot be read or written.
    """
    path = f"{stream.name}/receivers/_places"
    try:
        before: dict[str, str] = json.loads(stream.storage.read(path))
    except NotFoundError:
        before = {}
    now = {name: _described(receiver) for name, receiver in receivers.items()}
    for name, text in now.items():
        if _is_another(text, before.get(name, text), before.values()):
            raise RecoveryMismatchError(
                f"the receivers of stream {stream.name!r} have changed places: {_listed(now)}; "
                f"they were {_listed(before)}, and {name} would continue at another one's position",
                operation="start receivers",
                path=stream.storage.uri(path),
                ids={"stream": stream.name, "receiver": name},
                hint="give the receivers in the order in which they were, with new ones at the "
                "end; or receive into a stream of another name (name=)",
            )
    if {**before, **now} != before:
        stream.storage.create(path, json.dumps({**before, **now}).encode(), overwrite=True)


def _is_another(now: str, before: str, known: Collection[str]) -> bool:
    moved = now != before and now in known
    return moved or now.partition("(")[0] != before.partition("(")[0]


def _described(receiver: Receiver) -> str:
    kind = type(receiver)
    return kind.__name__ if kind.__repr__ is object.__repr__ else repr(receiver)


def _listed(places: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {text}" for name, text in places.items())
