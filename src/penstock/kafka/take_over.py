"""Takes over what earlier releases noted under another name of an input.

    sources/<former>/topics/<n>.json, losses/...   ->   sources/<name>/...

Invariants:

1. ``topics`` has an entry when all is taken over. What a kill left out before is copied again,
   which changes nothing; what a reset removes afterwards does not come back.
2. Nothing is removed: the release before finds its own.

Names of queries over ``penstock-kafka`` were digests of their topics, which change with these. So
without one of today's topics, the only one in the folder counts: it is one query's own.
"""

from __future__ import annotations

import re
from contextlib import suppress

from penstock.errors import AlreadyExistsError
from penstock.journal.losses.loss_log import LOSSES_FOLDER, source_folder
from penstock.kafka.generations import Generations
from penstock.storage import Storage

__all__ = ["former_names", "take_over"]

_OF_A_QUERY = re.compile(r"kafka-[0-9a-f]{8}")


def former_names(storage: Storage) -> list[str]:
    """Return under which names of earlier releases queries have notes."""
    folders = (each.name for each in storage.list("sources") if each.is_folder)
    return sorted(filter(_OF_A_QUERY.fullmatch, folders))


def take_over(storage: Storage, former: str, name: str) -> None:
    """Copy the notes of an input to its name, unless it has some.

    Args:
        storage: the checkpoint location, or the folder of the loss log.
        former: the name by today's topics.
        name: the input's.

    Raises:
        LogFormatError: ids are damaged.
        StorageError: a note cannot be copied; the call may be repeated.
    """
    if Generations(storage, name).is_noted or not (held := former_names(storage)):
        return
    source = former if former in held else held[0] if len(held) == 1 else None
    if source is None:
        return
    old, new = source_folder(source), source_folder(name)
    for entry in storage.names(f"{old}/{LOSSES_FOLDER}"):
        _copy(storage, f"{LOSSES_FOLDER}/{entry}", old, new)
    Generations(storage, name).begin_with(Generations(storage, source))


def _copy(storage: Storage, path: str, old: str, new: str) -> None:
    with suppress(AlreadyExistsError):
        storage.create(f"{new}/{path}", storage.read(f"{old}/{path}"))
