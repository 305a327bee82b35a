"""The arguments of a receiver's process: the receiver, its journal location and its settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import ConfigError
from penstock.journal import Bounds, CommitPolicy, JournalStream
from penstock.model import WhenFull
from penstock.receivers.receiver import Receiver

_LOCAL_POLL_MS = 200
_REMOTE_POLL_MS = 1000  # each poll is a request that an object store bills
_LEAST_BYTES = 64 << 20
"""Larger than the largest stores of built-in receivers (4 MiB of a file, a body of 16 MiB)."""


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """How receivers run; see penstock.conf for the settings they come from."""

    commit: CommitPolicy = field(default_factory=CommitPolicy)
    compression: str = "none"
    restart_delay_ms: int = 2000
    poll_ms: int = _LOCAL_POLL_MS
    """How often commands are read and what is held is measured: the delay of a stop or a limit."""
    sync: bool = True
    """Whether received records are fsynced before they are acked."""
    bounds: Bounds = field(default_factory=Bounds)
    """What each receiver may hold."""
    when_full: WhenFull = "block"
    """At the bounds the source waits (``block``), or the receiver ends with an error (``fail``)."""
    start_timeout_ms: int = 60_000
    """How long ``onStart`` may take; a thread that hangs only ends with its process."""
    stop_timeout_ms: int = 20_000
    """How long ``onStop`` may take; then the receiver is ended without it."""


@dataclass(frozen=True)
class ReceiverTask:
    """All that an executor needs to run a receiver; pickles small."""

    receiver: Receiver
    stream: JournalStream
    name: str
    run: str
    """The run that commands the receiver, from penstock.receivers.control.claim_run."""
    settings: ReceiverSettings

    @property
    def ids(self) -> dict[str, str]:
        """Its name in errors."""
        return {"stream": self.stream.name, "receiver": self.name}


def poll_interval_ms(journal_url: str) -> int:
    """Return the poll interval of control files for the journal's storage."""
    return _LOCAL_POLL_MS if journal_url.startswith("file:") else _REMOTE_POLL_MS


def receiver_bounds(max_bytes: int | None, max_lag_records: int | None) -> Bounds:
    """Return the bounds of a receiver that an operator chose.

    Raises:
        ConfigError: one is too small to work with.
    """
    for what, bound, least, names in (
        ("bytes", max_bytes, _LEAST_BYTES, "spark.penstock.journal.maxBytes, --max-journal-bytes"),
        ("uncommitted records", max_lag_records, 1, "spark.penstock.journal.maxLag, --max-lag"),
    ):
        if bound is not None and bound < least:
            needed = f"{least >> 20}m" if least == _LEAST_BYTES else least
            raise ConfigError(
                f"the bound on the journal's {what} is {bound}, for each receiver",
                operation="bound journal",
                hint=f"give {needed} or more ({names}), or leave it out for no bound",
            )
    return Bounds(max_bytes, max_lag_records)
