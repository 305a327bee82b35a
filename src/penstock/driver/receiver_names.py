"""Which name a receiver of a changed list continues under: positions are found by these names.

By its place in the list a receiver is called ``r0``, ``r1``, ..., and in another order each would
continue at the position of another one. So what receivers are made of is kept beside their
positions, for whoever starts receivers of the stream, in ``<stream>/receivers/_names/<n>``, in the
form of penstock.checkpoint.unnamed_parts and under its invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from penstock.checkpoint.unnamed_parts import Part, UnnamedParts
from penstock.driver.addresses import addresses, digest
from penstock.errors import ConcurrentDriverError, FencedError
from penstock.journal import JournalStream
from penstock.receivers import Receiver

__all__ = ["settle_receivers", "settled_names"]

_STEPS: tuple[Callable[[Part], object], ...] = (
    lambda part: (part.made_of, part.detail),
    lambda part: part.made_of,
)


def settled_names(stream: JournalStream, receivers: Mapping[str, Receiver]) -> dict[str, Receiver]:
    """Return receivers, called by place, by the names under which they continue.

    Raises:
        FencedError: another driver settled names of the stream at the same time.
        LogFormatError: what the stream has of them is damaged.
        StorageError: it cannot be read or written.
    """
    known = _KnownReceivers(stream.storage, f"{stream.name}/receivers/_names")
    before = known.newest()
    now = [_described(name, receiver) for name, receiver in receivers.items()]
    names = settle_receivers(before, now)
    parts = {part.name: part for part in before}  # one that is gone may be back
    parts |= {name: replace(part, name=name) for name, part in zip(names, now, strict=True)}
    try:
        known.replace(parts.values())
    except ConcurrentDriverError as error:
        raise FencedError(
            "another driver started receivers of the stream at the same time",
            operation="start receivers",
            path=stream.storage.uri(stream.name),
            ids={"stream": stream.name},
            hint="run one driver; the stream is that driver's",
        ) from error
    return dict(zip(names, receivers.values(), strict=True))


def settle_receivers(before: Sequence[Part], now: Sequence[Part]) -> list[str]:
    """Return the names of the receivers of one stream. Pure.

    Those that are the same may change their number: each can continue another one's position. One
    that was not there before gets no name that another one had.
    """
    found: dict[int, str] = {}
    old = {part.name: part for part in before}
    for key in _STEPS:
        for place, part in enumerate(now):
            same = (name for name, each in old.items() if key(each) == key(part))
            if place not in found and (name := next(same, None)) is not None:
                found[place] = name
                del old[name]
    taken = {part.name for part in before}
    for place in range(len(now)):
        if place not in found:
            found[place] = next(name for n in count(place) if (name := f"r{n}") not in taken)
            taken.add(found[place])
    return [found[place] for place in range(len(now))]


def _described(name: str, receiver: Receiver) -> Part:
    kind = type(receiver).__name__
    return Part("receiver", name, kind, kind, digest(sorted({*addresses(receiver)})))


class _KnownReceivers(UnnamedParts):
    def hint_for_damage(self, batch_id: int, usual: str) -> str:
        """See MetadataLog."""
        return (
            "restore the file from a backup; without one, delete the folder, and give the "
            "receivers in the order in which they were first given: they are found by it then"
        )
