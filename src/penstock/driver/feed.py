"""A stream of the journal, the receivers of this driver that write it, and how a run gets them.

A receiver of a list is called by its place, ``r0``, ``r1``, ..., and continues at the position of
that name. The stream's journal holds what each was, in ``<stream>/receivers/_places`` (JSON): its
``repr``, or its class if that has none of its own. A list is refused that has another class in a
place, or in whose place is what had another one before. Receivers may be added at the end and left
out there, and be made with other arguments.

A run takes receivers over from earlier runs before it starts them. Records of receivers that are
gone are in the journal and are read as all others; but none takes over from them, and one that
outlived its driver would receive for ever: so they are commanded to stop. Receivers seal their own
earlier epochs when they start.

Invariants, without a lock or a clock:

1. What is in a place is durable before a receiver is started under its name.
2. A receiver stores nothing before it has seen, after the claim of its epoch, that no later run
   claimed it (``RenewableWriter.open``).
3. A run claims all of a stream's receivers first, those that only an earlier run had included. Then
   it checks that no later run claimed one of them meanwhile, and seals the writers of those that it
   does not have.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.conf import StreamingSettings
from penstock.errors import ConfigError, NotFoundError, RecoveryMismatchError
from penstock.journal import CommitPolicy, JournalStream, RecordFormat
from penstock.journal.epochs import seal_receiver
from penstock.receivers import (
    Command,
    Receiver,
    ReceiverSettings,
    ReceiverTask,
    claim_run,
    poll_interval_ms,
    receiver_bounds,
)
from penstock.receivers.control import check_latest, commanded_receivers

_log = logging.getLogger(__name__)
_OWN_NAME = re.compile(r"r[0-9]+")
"""Names of a program's own receivers; other writers of the stream are not its to end."""


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


def take_over(
    stream: JournalStream,
    receivers: Mapping[str, Receiver],
    run_id: str,
    command: Command,
    settings: ReceiverSettings,
) -> list[ReceiverTask]:
    """Claim a stream's receivers for a run, and end those of earlier runs.

    Args:
        stream: where they store.
        receivers: what the run has, by name.
        run_id: 32 hex digits that no other run has.
        command: what they are to do at first.
        settings: of each of them.

    Returns:
        A task for each receiver.

    Raises:
        FencedError: a later run claimed one of them.
        StorageError: a step failed; the call can be repeated.
        DamagedBlockError: the newest block of a writer that has to be sealed is damaged, so its end
            is unknown.
    """
    runs = {name: claim_run(stream, name, run_id, command) for name in receivers}
    former = _former(stream, receivers)
    for name in former:
        claim_run(stream, name, run_id, Command(stop=True))
    for name, run in runs.items():
        check_latest(stream, name, run)
    for name in former:
        if seal_receiver(stream, name):
            _log.info("Receiver %s/%s of an earlier run is sealed", stream.name, name)
    return [
        ReceiverTask(receiver, stream, name, runs[name], settings)
        for name, receiver in receivers.items()
    ]


def _former(stream: JournalStream, present: Iterable[str]) -> list[str]:
    """Return the receivers that only earlier runs of the program had."""
    known = {writer.receiver for writer in stream.writers()} | commanded_receivers(stream)
    return sorted(name for name in known.difference(present) if _OWN_NAME.fullmatch(name))
