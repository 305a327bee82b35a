"""Where the first batch of each input begins: resolved once in the life of a checkpoint location.

    sources/<input>/0     v1
                          {"clicks":{"r0-00000001":17}}

The form is that of the files in which Spark's sources keep their initial offsets; ``null`` stands
for the source's very beginning.

Invariants:

1. The file is durable before the first batch with that input is planned, and before the input
   writes elsewhere where it begins. So "latest" is never resolved anew: after a crash between the
   first start and the first batch this would pass over what came between.
2. The exclusive create decides between drivers: the later one uses the existing file. So two that
   start at once begin at the same offset, whichever of them plans batch 0.
3. It never changes, and no purge deletes it: it says where batch 0 begins for as long as the
   location is there.

A kill before the create leaves nothing, and the next start resolves: nothing was processed, and no
driver was told where it begins. A kill after it leaves the answer.

Source: Spark's KafkaSourceInitialOffsetWriter, HDFSMetadataLog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.log_format import (
    MalformedLogError,
    decode_log,
    dump_json,
    parse_json,
)
from penstock.checkpoint.metadata_log import MetadataLog
from penstock.errors import ConcurrentDriverError
from penstock.storage import Storage

_FOLDER = "sources"
_ID = 0


@dataclass(frozen=True, slots=True)
class FirstOffset:
    """Where an input's first batch begins: JSON values, None for the source's very beginning."""

    offset: Any


class FirstOffsets:
    """The first offsets in a checkpoint location, by the inputs' names. Not thread-safe."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, FirstOffset | None] = {}

    def names(self) -> list[str]:
        """Return the names of the inputs that have one; lists."""
        return [entry.name for entry in self._storage.list(_FOLDER) if entry.is_folder]

    def get(self, name: str) -> FirstOffset | None:
        """Return where an input began, None when that was not resolved; reads it once.

        Raises LogFormatError when the file is damaged or of a newer version.
        """
        if name not in self._known:
            found = _FirstOffsetLog(self._storage, name).get(_ID)
            if found is not None:
                # Who created it may have died before its name was durable; listing makes it so.
                self._storage.list(f"{_FOLDER}/{name}")
            self._known[name] = found
        return self._known[name]

    def settle(self, name: str, offset: Any) -> FirstOffset:
        """Make durable where an input begins; return that, or what another driver was first with.

        After a StorageError the call may be repeated, also with another offset.

        Raises LogFormatError if the existing file is damaged, StorageError if it cannot be written.
        """
        log, found = _FirstOffsetLog(self._storage, name), FirstOffset(offset)
        self._storage.sweep(f"{_FOLDER}/{name}")
        try:
            log.add(_ID, found)
        except ConcurrentDriverError:
            self._known.pop(name, None)
            return self.get(name) or self.settle(name, offset)  # None: deleted since
        self._known[name] = found
        return found


class _FirstOffsetLog(MetadataLog[FirstOffset]):
    def __init__(self, storage: Storage, name: str) -> None:
        super().__init__(storage, f"{_FOLDER}/{name}")

    def encode(self, entry: FirstOffset) -> Sequence[str]:
        return [dump_json(entry.offset)]

    def decode(self, data: bytes) -> FirstOffset:
        lines = decode_log(data, self.version)
        if len(lines) != 1:
            raise MalformedLogError(f"Log file was malformed: {len(lines)} offsets, where 1 stands")
        try:
            return FirstOffset(parse_json(lines[0]))
        except ValueError as error:
            raise MalformedLogError(f"Log file was malformed: not JSON ({error})") from error

    def hint_for_damage(self, batch_id: int, usual: str) -> str:
        return (
            "restore the file from a backup; without one, delete it if batches of this input were "
            "planned (the offset log says how far they came), and start with a new checkpoint "
            "location otherwise"
        )
