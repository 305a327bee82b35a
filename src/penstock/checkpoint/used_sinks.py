"""Which outputs of a program write to exactly-once sinks: an empty file for each.

    outputs/<output>

Invariant: it is durable before the output's first write, and stays. An output that has written to
such a sink may not run earlier batches again: the sink takes none of them (docs/adr/0020). And it
keeps its name, by which the sink knows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import AlreadyExistsError
from penstock.storage import Storage

NOTES = "outputs"
"""Their folder."""


def note_sink_of(storage: Storage, output: str) -> None:
    """Note that an output writes to an exactly-once sink; may be repeated.

    Raises:
        StorageError: it cannot be made durable.
    """
    try:
        storage.create(f"{NOTES}/{output}", b"")
    except AlreadyExistsError:
        storage.list(NOTES)  # its creator may have died before the name was durable


def outputs_with_sinks(storage: Storage) -> Sequence[str]:
    """Return the outputs that have such a note; lists.

    Raises:
        StorageError: the location cannot be listed.
    """
    return list(storage.names(NOTES))
