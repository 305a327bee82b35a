"""A stream of the journal, the receivers of this driver that write it, and how they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.conf import StreamingSettings
from penstock.errors import ConfigError
from penstock.journal import CommitPolicy, JournalStream, RecordFormat
from penstock.receivers import Receiver, ReceiverSettings, poll_interval_ms, receiver_bounds


@dataclass(frozen=True, slots=True)
class ReceiverFeed:
    """The stream that the driver's own receivers write."""

    receivers: Mapping[str, Receiver]
    """The receivers, by the names of their writers."""
    journal: JournalStream


def named_receivers(
    given: Receiver | Sequence[Receiver], operation: str = "make receiver stream"
) -> dict[str, Receiver]:
    """Return receivers by the names of their writers: ``r0``, ``r1``, ...

    Raises:
        ConfigError: one is not a receiver.
    """
    several = [given] if isinstance(given, Receiver) else given
    if not isinstance(several, Sequence) or not all(isinstance(r, Receiver) for r in several):
        raise ConfigError(
            f"{given!r} is not a receiver",
            operation=operation,
            hint="give an instance of a subclass of penstock.receivers.Receiver",
        )
    return {f"r{index}": each for index, each in enumerate(several)}


def shared_format(
    receivers: Sequence[Receiver], operation: str = "make receiver stream"
) -> RecordFormat:
    """Return how the records of a stream's receivers are stored.

    Raises:
        ConfigError: there are none, or their schemas differ.
    """
    formats = [RecordFormat(receiver.schema) for receiver in receivers]
    if not formats or any(other != formats[0] for other in formats):
        found = ", ".join(map(repr, formats)) or "no receivers"
        raise ConfigError(
            f"receivers of one stream store records of one schema, and these are {found}",
            operation=operation,
            hint="give at least one receiver; use a separate stream for each schema",
        )
    return formats[0]


def receiver_settings(settings: StreamingSettings, journal_url: str) -> ReceiverSettings:
    """Return how the receivers of a driver run; the bounds are those of each receiver.

    Raises:
        ConfigError: a bound is too small.
    """
    return ReceiverSettings(
        commit=CommitPolicy(block_interval_ms=settings.block_interval_ms),
        compression=settings.journal_compression,
        restart_delay_ms=settings.receiver_restart_delay_ms,
        sync=settings.write_ahead_log is not False,
        poll_ms=poll_interval_ms(journal_url),
        bounds=receiver_bounds(settings.journal_max_bytes, settings.journal_max_lag),
        when_full=settings.journal_when_full,
    )
