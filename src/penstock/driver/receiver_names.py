"""Which receivers of a list had which place: positions are found by the place.

A receiver of a list is called by its place, ``r0``, ``r1``, ..., and continues at the position of
that name. The stream's journal holds the kind of each, its class, in ``<stream>/receivers/_kinds``
(JSON), and a list that has another kind in a place is refused. Receivers may be added at the end
and left out there.

Invariant: the kinds are durable before a receiver is started under a name that is new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.errors import NotFoundError, RecoveryMismatchError
from penstock.journal import JournalStream
from penstock.receivers import Receiver

__all__ = ["check_kinds"]


def check_kinds(stream: JournalStream, receivers: Mapping[str, Receiver]) -> None:
    """Check that receivers, by name, are of the kinds that had their names before.

    Raises:
        RecoveryMismatchError: one is of another kind.
        StorageError: the kinds cannot be read or written.
    """
    path = f"{stream.name}/receivers/_kinds"
    try:
        before = json.loads(stream.storage.read(path))
    except NotFoundError:
        before = {}
    now = {name: type(receiver).__name__ for name, receiver in receivers.items()}
    changed = [name for name in now if before.get(name, now[name]) != now[name]]
    if changed:
        raise RecoveryMismatchError(
            f"the receivers of stream {stream.name!r} have changed: {_listed(now)}; they were "
            f"{_listed(before)}, and {changed[0]} would continue at the position of another kind",
            operation="start receivers",
            path=stream.storage.uri(path),
            ids={"stream": stream.name, "receiver": changed[0]},
            hint="give the receivers in the order in which they were, with new ones at the end; or "
            "start a stream of another name (name=)",
        )
    if {**before, **now} != before:
        stream.storage.create(path, json.dumps({**before, **now}).encode(), overwrite=True)


def _listed(kinds: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())
