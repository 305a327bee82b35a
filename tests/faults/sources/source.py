"""What a storm of faults needs of a source: a client outside Spark that keeps a ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

PLACES = ("spark", "ingest")
"""Where the two receivers of a site run: as a Spark task, and as `penstock ingest`."""
PAUSE_S = 0.1
"""Between two bursts of a client's, so that four sources leave the processors to the faults."""


@dataclass(frozen=True, slots=True)
class Balance:
    """A ledger beside what arrived. No record is lost or unexpected: that is the promise."""

    sent: int
    lost: tuple[str, ...]
    unexpected: tuple[str, ...]
    duplicated: int
    may_be_duplicated: int = 0

    @property
    def ok(self) -> bool:
        clean = not self.lost and not self.unexpected
        return self.sent > 0 and clean and self.duplicated <= self.may_be_duplicated

    def __str__(self) -> str:
        return (
            f"sent {self.sent}; lost {len(self.lost)} {self.lost[:5]}; unexpected "
            f"{len(self.unexpected)} {self.unexpected[:5]}; duplicated {self.duplicated}, of which "
            f"{self.may_be_duplicated} may be"
        )


@dataclass(frozen=True, slots=True)
class ReceiverSpec:
    """The same receiver for both places: its class and arguments, and as a command line."""

    kind: str
    arguments: dict[str, Any]
    command: tuple[str, ...]


class Source(ABC):
    """A client that sends numbered records to both places, and knows what was acked."""

    has_connections = True

    @abstractmethod
    def receiver(self, place: str) -> ReceiverSpec:
        """Return the receiver that runs at a place."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run what has to be there until everything has arrived."""
        yield

    @abstractmethod
    def sending(self) -> AbstractContextManager[None]:
        """Send while the block runs; at its end, wait until nothing is left half sent."""

    @abstractmethod
    def cut(self) -> None:
        """Cut the connections between client, or server, and receivers, if it has some."""

    @abstractmethod
    def balance(self, seen: Counter[str]) -> Balance:
        """Compare the ledger with how often each record arrived."""


def exactly_once(sent: Iterable[str], seen: Counter[str], may_twice: int = 0) -> Balance:
    """Return the balance of records of which each shall have arrived."""
    expected = set(sent)
    return Balance(
        sent=len(expected),
        lost=tuple(sorted(expected - seen.keys())),
        unexpected=tuple(sorted(seen.keys() - expected)),
        duplicated=sum(times - 1 for times in seen.values()),
        may_be_duplicated=may_twice,
    )
