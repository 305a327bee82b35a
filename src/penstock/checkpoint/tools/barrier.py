"""The entry that stands in the offset log while a location is being changed. Pure.

    offsets/9223372036854775807     v2147483647
                                    {"interrupted":"...","attempt":"4be0...","undo":"undo/2026...json"}
    offsets/9223372036854775806     of the command that took the change over, and so on

No batch reaches these ids. Every query reads the newest entry of the offset log when it starts, and
every release of Spark and of penstock refuses a version newer than its own ("The log file was
produced by a newer version of Spark"). Spark 4 refuses before it reads, by the distance between the
ids ("More than Int.MaxValue elements").
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable

from penstock.checkpoint.batch_ids import MAX_BATCH_ID, parse_batch_id
from penstock.checkpoint.log_format import (
    MalformedLogError,
    dump_json,
    encode_log,
    parse_fields,
    parse_log,
)

__all__ = [
    "BARRIER",
    "INTERRUPTED",
    "barrier_entry",
    "barriers_in",
    "is_barrier",
    "last_batch_of",
    "next_barrier",
    "origin_of",
    "takes_back",
    "undo_path_of",
    "ways_out",
]

BARRIER = f"offsets/{MAX_BATCH_ID}"
"""That of the command that began the change; each one that takes over has an id one lower."""
_MOST_COMMANDS = 1_000
INTERRUPTED = "a change of this location by `penstock checkpoint` is not finished"
_VERSION = 2**31 - 1
_UNDO_FILE = re.compile(r"undo/[0-9A-Za-z][0-9A-Za-z.-]*")


def barrier_entry(
    attempt: str,
    *,
    undo: str | None = None,
    takes_back: bool = False,
    copy_of: str | None = None,
    last_batch: int | None = None,
) -> bytes:
    """Return the entry of a change.

    Args:
        attempt: a random token of the command that makes the change.
        undo: the path of its undo file in the location.
        takes_back: whether the command takes the change back.
        copy_of: where the files come from, for a location that is being filled.
        last_batch: the newest batch of the copy, if its origin may move on meanwhile.
    """
    fields = {
        "interrupted": f"{INTERRUPTED}: see docs/checkpoints.md",
        "attempt": attempt,
        "undo": undo,
        "takesBack": takes_back or None,
        "copyOf": copy_of,
        "lastBatch": last_batch,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return encode_log(_VERSION, [dump_json(known)])


def is_barrier(path: str) -> bool:
    """Whether a path is that of a barrier, of whatever command."""
    return _id_of(path) > MAX_BATCH_ID - _MOST_COMMANDS


def barriers_in(paths: Iterable[str]) -> list[str]:
    """Return the barriers among paths, that of the last command last."""
    return sorted(filter(is_barrier, paths), key=_id_of, reverse=True)


def next_barrier(barriers: list[str]) -> str:
    """Return the barrier of the command that takes over from these, or begins a change."""
    return f"offsets/{_id_of(barriers[-1]) - 1}" if barriers else BARRIER


def _id_of(path: str) -> int:
    folder, _, name = path.rpartition("/")
    found = parse_batch_id(name) if folder == "offsets" else None
    return -1 if found is None else found


def undo_path_of(entry: bytes) -> str | None:
    """Return where the undo file of a change is; None when the entry does not tell."""
    path = _field(entry, "undo")
    return path if isinstance(path, str) and _UNDO_FILE.fullmatch(path) else None


def takes_back(entry: bytes) -> bool:
    """Whether the command of an entry takes the change back; else it makes it."""
    return _field(entry, "takesBack") is True


def origin_of(entry: bytes) -> str | None:
    """Return where the files of a copy come from; None when the entry does not tell."""
    origin = _field(entry, "copyOf")
    return origin if isinstance(origin, str) else None


def last_batch_of(entry: bytes) -> int | None:
    """Return the newest batch of a copy; None when the entry does not tell."""
    batch_id = _field(entry, "lastBatch")
    return batch_id if type(batch_id) is int else None


def ways_out(entry: bytes, uri: Callable[[str], str]) -> str:
    """Return how a change is finished, or taken back; ``uri`` tells that of a path."""
    again = "repeat the command that was interrupted, which completes it, or"
    if (undo := undo_path_of(entry)) is not None:
        return f"{again} take it back: penstock checkpoint undo {shlex.quote(uri(undo))} --apply"
    if origin_of(entry) is not None:
        return f"{again} delete the folder, which a fork or import began to fill"
    return f"{again} restore the location from a backup: {BARRIER} does not say what was begun"


def _field(entry: bytes, name: str) -> object:
    try:
        _, lines = parse_log(entry)
        return parse_fields(lines[0] if lines else "").get(name)
    except MalformedLogError:
        return None
