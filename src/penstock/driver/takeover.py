"""How a run takes a stream's receivers over from earlier runs, before it starts them.

Invariants, without a lock or a clock:

1. A receiver stores nothing before it has seen, after the claim of its epoch, that no later run
   claimed it (``RenewableWriter.open``).
2. A run claims all of a stream's receivers first, those that only an earlier run had included. Then
   it checks that no later run claimed one of them meanwhile, and seals the writers of those that it
   does not have.

Records of receivers that are gone are in the journal and are read as all others; but none takes
over from them, and one that outlived its driver would receive for ever: so they are commanded to
stop. Receivers seal their own earlier epochs when they start.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from penstock.journal import JournalStream
from penstock.journal.epochs import seal_receiver
from penstock.receivers import Command, Receiver, ReceiverSettings, ReceiverTask, claim_run
from penstock.receivers.control import check_latest, commanded_receivers

_log = logging.getLogger(__name__)
_OWN_NAME = re.compile(r"r[0-9]+")
"""Names of a program's own receivers; other writers of the stream are not its to end."""


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
