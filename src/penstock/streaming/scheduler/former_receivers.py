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
from penstock.receivers import Order, read_order, write_order

__all__ = ["end_former_receivers"]

_log = logging.getLogger(__name__)
_OWN_NAME = re.compile(r"r[0-9]+")
"""Names of a program's own receivers; other writers of the stream are not its to end."""


def end_former_receivers(stream: JournalStream, present: Collection[str], run: str) -> None:
    """Order the receivers that are not ``present`` to stop, and seal their writers.

    Raises:
        StorageError: a step failed; the call can be repeated.
        DamagedBlockError: the newest block of one is damaged, so its end is unknown.
    """
    names = {writer.receiver for writer in stream.writers()}
    for name in sorted(names.difference(present)):
        if not _OWN_NAME.fullmatch(name):
            continue
        order = read_order(stream, name)
        if order is not None and not order.stop:
            write_order(stream, name, Order(run, stop=True))
        if seal_receiver(stream, name):
            _log.info("Receiver %s/%s of an earlier run is sealed", stream.name, name)
