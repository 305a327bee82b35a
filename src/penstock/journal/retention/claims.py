"""Claims: of a consumer's readers that follow one another unannounced, the last one has it.

    consumers/<name>.<claim>.claim     ``<number>-<random hex>``: the greatest counts

Invariants:

1. A reader creates its claim before it reads the consumer's file, and with it from where on blocks
   are kept. A commit writes the consumer's file before it lists the claims, and deletes no block
   once there is a later one. The side that reads second reads after both have published: so either
   the later reader sees up to where blocks may be gone, or the earlier one deletes none of them.
2. A claim is never written again. So an earlier reader, which replaces the consumer's file when it
   wakes up in its commit, does not undo a later claim.

Claims before the last one mean nothing, and are removed by it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable

from penstock.errors import ConcurrentDriverError
from penstock.journal.layout import consumer_path, consumers_folder
from penstock.journal.stream import JournalStream

_SUFFIX = ".claim"


def claim(stream: JournalStream, consumer: str, known: str | None) -> str:
    """Claim a consumer after all that did, of whom ``known`` is in its file; return the claim."""
    earlier = _claims(stream.storage.names(consumers_folder(stream.name)), consumer)
    last = max([known, *earlier], key=claim_order)
    number = max(claim_order(last)[0] + 1, time.time_ns() // 1_000_000)
    mine = f"{number}-{uuid.uuid4().hex}"
    stream.storage.create(_path(stream, consumer, mine), b"{}")
    _remove(stream, consumer, earlier)
    return mine


def claim_order(claim: str | None) -> tuple[int, str]:
    """Return what orders claims: their numbers; of two that were made at once, one is the later."""
    number, dash, _ = (claim or "").partition("-")
    return (int(number) if dash and number.isdecimal() else 0, claim or "")


def check_last(stream: JournalStream, consumer: str, own: str | None, names: Iterable[str]) -> None:
    """Raise ConcurrentDriverError if one of the claims among the files' names is later."""
    if own is not None and any(
        claim_order(each) > claim_order(own) for each in _claims(names, consumer)
    ):
        raise superseded(stream, consumer)


def superseded(stream: JournalStream, consumer: str) -> ConcurrentDriverError:
    """Return the error of a reader that another one has followed."""
    return ConcurrentDriverError(
        f"another query reads as consumer {consumer!r} since this one began",
        operation="plan batch",
        path=stream.storage.uri(consumer_path(stream.name, consumer)),
        ids={"stream": stream.name, "consumer": consumer},
        hint="if it is the same query, started again, this is the earlier run, and nothing "
        "is to be done; otherwise give each query a consumer of its own, and start this "
        "one again",
    )


def remove_claims(stream: JournalStream, consumer: str) -> None:
    """Remove the claims of a consumer that is removed."""
    _remove(
        stream, consumer, _claims(stream.storage.names(consumers_folder(stream.name)), consumer)
    )


def _remove(stream: JournalStream, consumer: str, claims: Iterable[str]) -> None:
    for each in claims:
        stream.storage.delete(_path(stream, consumer, each))


def _claims(names: Iterable[str], consumer: str) -> list[str]:
    prefix = f"{consumer}."
    found = (
        name.removesuffix(_SUFFIX).removeprefix(prefix)
        for name in names
        if name.endswith(_SUFFIX) and name.startswith(prefix)
    )
    return [each for each in found if "." not in each]  # else of a consumer with a longer name


def _path(stream: JournalStream, consumer: str, claim: str) -> str:
    return f"{consumers_folder(stream.name)}/{consumer}.{claim}{_SUFFIX}"
