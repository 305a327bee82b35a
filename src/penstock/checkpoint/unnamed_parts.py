"""What the parts of a program without names of their own are made of: how a restart finds them.

    unnamed/<n>    v1
                   ["output","foreachRDD-0","foreachRDD","foreachRDD(f) of tail-0","9f86"]

A part is an input, an operator with state or an output that is called by its kind and place. Files
of the location are found by such names (``sources/tail-0``, ``rdds/marks/updateStateByKey-0``), so
the newest entry says which part each name belongs to (penstock.streaming.recovery.unnamed).
Receivers of a stream have such a folder in its journal (penstock.driver.receiver_names).

Invariants:

1. The entry is durable before anything else is created under a name that is new in it. So a name
   in use has an entry, or belongs to a release that wrote none.
2. An entry never changes. The exclusive create decides between two drivers that start at once.
3. Only entries before the newest two are deleted. A kill between create and deletion leaves one
   more, which the next deletion removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from penstock.checkpoint.log_format import MalformedLogError, decode_log, dump_json, parse_json
from penstock.checkpoint.metadata_log import MetadataLog
from penstock.storage import Storage

__all__ = ["DESCRIPTIONS", "Part", "UnnamedParts"]

DESCRIPTIONS = "unnamed"
"""Their folder."""
_KEPT = 2


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a program: ``kind`` is its operation, or the class of an input or receiver.

    ``role`` is "input", "operator", "output" or "receiver".

    ``made_of`` is its operation and those before it, with the names of functions. ``detail`` is a
    digest of what tells parts apart that are made of the same: addresses, the code of lambdas.
    """

    role: str
    name: str
    kind: str
    made_of: str
    detail: str


class UnnamedParts(MetadataLog[tuple[Part, ...]]):
    """The descriptions in a folder, that of a checkpoint location. Not thread-safe."""

    def __init__(self, storage: Storage, folder: str = DESCRIPTIONS) -> None:
        super().__init__(storage, folder)

    def newest(self) -> tuple[Part, ...]:
        """Return the newest description, empty without one; raises as ``latest``."""
        found = self.latest()
        return () if found is None else found[1]

    def replace(self, parts: Iterable[Part]) -> None:
        """Make a description durable, unless it is the newest one already.

        Raises:
            ConcurrentDriverError: another driver wrote one at the same time.
            StorageError: it cannot be written.
        """
        found, wanted = self.latest(), tuple(parts)
        if wanted == (() if found is None else found[1]):
            return
        newest = 0 if found is None else found[0] + 1
        self.sweep()
        self.add(newest, wanted)
        self.purge(newest + 1 - _KEPT)

    def encode(self, entry: tuple[Part, ...]) -> Sequence[str]:
        """See MetadataLog."""
        return [dump_json(list(astuple(part))) for part in entry]

    def decode(self, data: bytes) -> tuple[Part, ...]:
        """See MetadataLog."""
        try:
            rows = [parse_json(line) for line in decode_log(data, self.version)]
            parts = tuple(Part(*row) for row in rows)
        except (TypeError, ValueError) as error:
            raise MalformedLogError(f"Log file was malformed: not a part ({error})") from error
        if not all(isinstance(value, str) for part in parts for value in astuple(part)):
            raise MalformedLogError("Log file was malformed: a part is not described in words")
        return parts

    def hint_for_damage(self, batch_id: int, usual: str) -> str:
        """See MetadataLog."""
        return (
            "restore the file from a backup; without one, give each input, stateful operator and "
            "output a name (name=), the one that offsets/ has for it, and delete the folder"
        )
