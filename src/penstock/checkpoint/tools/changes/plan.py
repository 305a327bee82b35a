r"""A change of a checkpoint location as plain values, and as the text of its undo file. Pure.

    {"version":1,"command":"rewind --to-batch 5","newest":[12,12],"meaning":["..."],
     "changes":[{"path":"offsets/13","before":null,"after":{"text":"v1\n..."},"why":"..."}]}

A file's content is ``null`` where there is no file, text, base64, or ``{"copyOf":path}``: that of
another file of the location, which is too large to be held twice.

Whoever can write to the location can write such a file, and must not reach others by it: paths that
no plan has are refused, and links when it is applied (penstock.checkpoint.tools.changes.links).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from typing import Any

from penstock.checkpoint.batch_ids import parse_batch_id
from penstock.checkpoint.rollback import REWOUND
from penstock.checkpoint.tools.barrier import BARRIER
from penstock.checkpoint.tools.reading import FOLDERS
from penstock.storage import check_path

_VERSION = 1
_MOST_NAMES, _NAME_BYTES = 16, 200
"""Spark's paths have up to seven names. A name may have 255 bytes, and temporary files add some."""


class MalformedPlanError(ValueError):
    """Text is not an undo file."""


@dataclass(frozen=True, slots=True)
class CopyOf:
    """The content of another file of the location."""

    path: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """What one file holds before and after; None stands for no file."""

    path: str
    before: bytes | CopyOf | None
    after: bytes | CopyOf | None
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A change of a location: nothing is done until it is applied."""

    location: str
    """URL of the location."""
    command: str
    """The command that planned it, without the location."""
    meaning: tuple[str, ...]
    """What follows for the query, in sentences."""
    changes: tuple[FileChange, ...]
    newest: tuple[int, int]
    """The newest planned and the newest committed batch when it was planned; -1 for none."""
    undo_path: str | None = None
    """The undo file that it was read from, by its path in the location; None for a new plan."""

    def newest_after(self) -> tuple[int, int]:
        """Return the newest ids that the logs may hold before, during and after the change."""
        logs = ("offsets", "commits")
        paths = [change.path for change in self.changes]
        planned, committed = (
            max(before, *(_batch_id(path, log) for path in paths), -1)
            for before, log in zip(self.newest, logs, strict=True)
        )
        return planned, committed


def inverse(plan: Plan) -> Plan:
    """Return the change that takes a change back."""
    changes = tuple(
        replace(each, before=each.after, after=each.before) for each in reversed(plan.changes)
    )
    meaning = ("the location is again as it was before",)
    return replace(plan, command=f"undo {plan.command}", meaning=meaning, changes=changes)


def dump_plan(plan: Plan) -> bytes:
    """Return the content of the plan's undo file."""
    return json.dumps(plan_fields(plan), indent=1).encode()


def plan_fields(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain JSON."""
    return {
        "version": _VERSION,
        "command": plan.command,
        "newest": plan.newest,
        "meaning": plan.meaning,
        "changes": [_change_fields(each) for each in plan.changes],
    }


def parse_plan(data: bytes, *, location: str, undo_path: str) -> Plan:
    """Return the plan of an undo file.

    Raises:
        MalformedPlanError: it is none, or of a newer version.
    """
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise MalformedPlanError(f"it is of version {fields['version']}, not {_VERSION}")
        changes = tuple(
            FileChange(
                _checked_path(str(each["path"])),
                _parse_side(each["before"]),
                _parse_side(each["after"]),
                str(each["why"]),
            )
            for each in fields["changes"]
        )
        planned, committed = map(int, fields["newest"])
        command, meaning = str(fields["command"]), tuple(map(str, fields["meaning"]))
    except MalformedPlanError:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedPlanError(f"it is not an undo file ({error!r})") from error
    return Plan(location, command, meaning, changes, (planned, committed), undo_path)


def _batch_id(path: str, log: str) -> int:
    folder, _, name = path.rpartition("/")
    found = parse_batch_id(name) if folder == log else None
    return -1 if found is None else found


def _change_fields(change: FileChange) -> dict[str, Any]:
    return {
        "path": change.path,
        "before": _dump_side(change.before),
        "after": _dump_side(change.after),
        "why": change.why,
    }


def _checked_path(path: str) -> str:
    """Return a path if it is one that a plan may change: in Spark's folders, or REWOUND."""
    folder, slash, _ = check_path(path).partition("/")
    is_known = folder in FOLDERS if slash else folder == REWOUND
    if path == BARRIER or not is_known or not _is_plain(path):
        raise ValueError(f"it changes {path!r}")
    return path


def _is_plain(path: str) -> bool:
    """Whether a path is UTF-8, and no longer than those that queries write."""
    try:
        names = path.encode().split(b"/")
    except UnicodeEncodeError:
        return False
    return len(names) <= _MOST_NAMES and max(map(len, names)) <= _NAME_BYTES


def _dump_side(side: bytes | CopyOf | None) -> dict[str, str] | None:
    """Return what a file holds as plain JSON."""
    if side is None:
        return None
    if isinstance(side, CopyOf):
        return {"copyOf": side.path}
    try:
        return {"text": side.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(side).decode()}


def _parse_side(value: Any) -> bytes | CopyOf | None:
    """Return what ``_dump_side`` was given; raises ValueError, KeyError, TypeError."""
    if value is None:
        return None
    if "copyOf" in value:
        return CopyOf(_checked_path(str(value["copyOf"])))
    if "text" in value:
        return str(value["text"]).encode()
    return base64.b64decode(value["base64"], validate=True)
