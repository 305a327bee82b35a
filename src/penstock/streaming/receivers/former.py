"""Ends receivers that an earlier run of a program had, and this one has not.

Changing the number of receivers is such a case. The records of those that are gone stand in the
journal and are read as all others; but nobody takes over from them, so nobody would seal them, and
one that outlived its driver would go on receiving for ever.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

from penstock.journal import JournalStream
from penstock.journal.epochs import seal_receiver
from penstock.receivers import Command, claim_run, newest_run, read_command

__all__ = ["end_former_receivers"]

_log = logging.getLogger(__name__)
_OWN_NAME = re.compile(r"r[0-9]+")
"""Names of a program's own receivers; other writers of the stream are not its to end."""


def end_former_receivers(stream: JournalStream, present: Collection[str], run_id: str) -> None:
    """Take over the receivers that are not ``present``, stop them, and seal their writers.

    Raises:
        FencedError: a later run did the same.
        StorageError: a step failed; the call can be repeated.
        DamagedBlockError: the newest block of one is damaged, so its end is unknown.
    """
    names = {writer.receiver for writer in stream.writers()}
    for name in sorted(names.difference(present)):
        if not _OWN_NAME.fullmatch(name):
            continue
        newest = newest_run(stream, name)
        command = None if newest is None else read_command(stream, name, newest)
        if command is not None and not command.stop:
            claim_run(stream, name, run_id, Command(stop=True))
        if seal_receiver(stream, name):
            _log.info("Receiver %s/%s of an earlier run is sealed", stream.name, name)
