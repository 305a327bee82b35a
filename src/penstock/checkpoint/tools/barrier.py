"""The entry that stands in the offset log while a location is being changed. Pure.

    offsets/9223372036854775807     v2147483647
                                    {"interrupted":"...","attempt":"4be0...","undo":"undo/2026...json"}

No batch reaches this id. Every query reads the newest entry of the offset log when it starts, and
every release of Spark and of penstock refuses a version newer than its own ("The log file was
produced by a newer version of Spark"). Spark 4 refuses before it reads, by the distance between the
ids ("More than Int.MaxValue elements").
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from penstock.checkpoint.batch_ids import MAX_BATCH_ID
from penstock.checkpoint.log_format import (
    MalformedLogError,
    dump_json,
    encode_log,
    parse_fields,
    parse_log,
)

BARRIER = f"offsets/{MAX_BATCH_ID}"
INTERRUPTED = "a change of this location by `penstock checkpoint` is not finished"
_VERSION = 2**31 - 1
_UNDO_FILE = re.compile(r"undo/[0-9A-Za-z][0-9A-Za-z.-]*")


def barrier_entry(attempt: str, *, undo: str | None = None, copy_of: str | None = None) -> bytes:
    """Return the entry of a change.

    Args:
        attempt: a random token of the command that makes the change, or takes it back.
        undo: the path of its undo file in the location.
        copy_of: where the files come from, for a location that a fork fills.
    """
    fields = {
        "interrupted": f"{INTERRUPTED}: see docs/checkpoints.md",
        "attempt": attempt,
        "undo": undo,
        "copyOf": copy_of,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return encode_log(_VERSION, [dump_json(known)])


def undo_path_of(entry: bytes) -> str | None:
    """Return where the undo file of a change is; None when the entry does not tell."""
    path = _fields(entry).get("undo")
    return path if isinstance(path, str) and _UNDO_FILE.fullmatch(path) else None


def ways_out(entry: bytes, uri: Callable[[str], str]) -> str:
    """Return how a change that was interrupted is ended; ``uri`` tells that of a path."""
    if (undo := undo_path_of(entry)) is not None:
        command = f"penstock checkpoint undo {shlex.quote(uri(undo))} --apply"
        return f"if no command is at work there, take the change back: {command}"
    if "copyOf" in _fields(entry):
        return "if no fork is at work there, delete the folder, which one began to fill"
    return f"restore the location from a backup: {BARRIER} does not say what was begun"


def _fields(entry: bytes) -> dict[str, object]:
    try:
        _, lines = parse_log(entry)
        return dict(parse_fields(lines[0] if lines else ""))
    except MalformedLogError:
        return {}
