"""Fills a new location with files: all of them, or no query starts there.

    barrier -> files -> barrier removed

Invariants:

1. A location that holds anything else is refused, so no file of a query is overwritten.
2. The barrier (penstock.checkpoint.tools.barrier) is there before the first file and until the last
   one is durable; it says where the files come from. What was begun is begun again from the start,
   by the same command only: the origin may have moved meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checkpoint.tools.barrier import BARRIER, barrier_entry
from penstock.checkpoint.tools.reading import list_files
from penstock.errors import AlreadyExistsError, ConfigError
from penstock.storage import Storage, open_storage
from penstock.storage.names import is_temporary

__all__ = ["check_free", "fill_location"]


def check_free(storage: Storage, origin: str) -> None:
    """Check that a location is empty, or was begun to be filled from the same origin.

    Raises:
        ConfigError: it is neither.
    """
    names = ((path, path.rpartition("/")[2]) for path in list_files(storage))
    files = {path for path, name in names if not is_temporary(name)}  # those a kill may leave
    begun = BARRIER in files and storage.read(BARRIER) == barrier_entry(copy_of=origin)
    if files and not begun:
        raise ConfigError(
            "the new checkpoint location is not empty",
            operation="fill checkpoint location",
            path=storage.url,
            hint="give a folder that does not exist yet",
        )


def fill_location(target: str, origin: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Create a location with these files, by path.

    Raises:
        ConfigError: it is not empty.
        StorageError: a file cannot be read or written; the same call begins again.
    """
    storage = open_storage(target)
    check_free(storage, origin)
    entry = barrier_entry(copy_of=origin)
    try:
        storage.create(BARRIER, entry)
    except AlreadyExistsError:
        check_free(storage, origin)
    storage.delete_all([path for path in list_files(storage) if path != BARRIER])
    for path, data in files:
        storage.create(path, data)
    storage.delete(BARRIER)
