"""The positions of a tail: the mark of each file, most of them in a copy that positions name.

A position is in every block, and the marks of 10,000 files take 1.7 MB. So of many marks a full
copy is a file of its own, and a position holds the marks that changed since. Invariants:

1. The position of the newest block, or seal, and the newest copy that it names tell all marks:
   those in the copy, but for the paths that changed since, whose marks are in the position.
2. A copy is durable before a position that names it is published, and never changes. Its name tells
   its writer, so an attempt that was taken over writes no copy that its successor names.
3. A position names two copies: the newest, and the one before. A copy is deleted only when a
   position is durable that does not name it and comes after it. So the position of the block before
   the newest has its copy as well, and where a copy is damaged there is an earlier one: lines are
   stored again then, none is lost.
4. After the first one, a copy is written only when the positions since the last one would hold
   ``_REPEATS`` times as many marks as paths are in it: copies add a third to what positions take.

The work for a block is that for the marks in its position; only a copy takes that for all marks.
But for the construction and ``marks``, all is done by the one thread that encodes blocks.

Positions and, behind a line with the CRC-32 of what follows in 8 hex digits, copies::

    {"version": 1, "files": [<mark>, ...]}
    {"version": 2, "copies": [<name>, ...], "files": [<mark>, ...], "gone": [<path>, ...]}

"name" and "whole" of a mark (see ``Mark``) are there if they say something. The device of a file is
not in it.
Version 1 tells all marks, and is what copies hold and what a position is until there are many.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import NotFoundError, ReceiverError, StorageError
from penstock.journal import DeferredPosition
from penstock.journal.layout import parse_writer
from penstock.receivers.own_files import (
    OwnFiles,
    create_json,
    numbered_files,
    numbered_name,
    read_json,
)
from penstock.receivers.tail.follow import NO_DEVICE, FileId, Mark
from penstock.receivers.tail.scan import Report

_log = logging.getLogger(__name__)

MarksByPath = Mapping[str, list[Mark]]
"""Those of one path in the order of age; none for a path that is gone."""

FEW_MARKS = 100
"""No copy is written for the sake of fewer: they take about 17 KB of a position."""
_REPEATS = 4
_PREFIX = "marks-"

_SOME_AGAIN = "the copy before it is used, and lines that came between the two are stored again"
_ALL_AGAIN = (
    "no copy is left, so all files but those that changed after it are stored again from their "
    "beginning; what was not read yet of files that were rotated is not searched for, so compare it"
)


class MarkPositions:
    """Makes the positions of stores from what changed, store by store.

    Args:
        files: where copies go.
        position: the last durable one; None when there is none.
        report: told of copies that cannot be read.

    Raises:
        ReceiverError: the position was stored by another kind of receiver, or by a newer version.
        StorageError: a copy could not be read now, though it may be sound.
    """

    def __init__(self, files: OwnFiles, position: Any, report: Report) -> None:
        self._files = files
        self._marks: dict[str, list[Mark]] = {}
        self._copies: list[str] = []
        """What positions name, the newest first; none as long as a position tells all marks."""
        self._changed: set[str] = set()
        """The paths whose marks differ from those in the newest copy."""
        self._repeated = 0
        """Marks in the positions since the newest copy."""
        self._next_copy: int | None = None
        self._superseded: list[str] = []
        """Copies to be deleted as soon as the durable position does not name them."""
        self._own: list[str] = []
        """Copies of this object from the one on that the durable position named last."""
        if position is not None:
            self._load(position, report)

    def marks(self) -> list[Mark]:
        """Return all marks; to be asked before the first store."""
        return [mark for marks in self._marks.values() for mark in marks]

    def after(self, changes: MarksByPath, durable: Any) -> DeferredPosition:
        """Return the position of the next store.

        Args:
            changes: all marks of each path of which one was added, changed or dropped since the
                store before.
            durable: a position that is durable by now, the latest that is known.
        """
        return _Position(self, changes, durable)

    def apply(self, changes: MarksByPath) -> None:
        """Take in the changes of a store."""
        for path, marks in changes.items():
            if marks:
                self._marks[path] = marks
            else:
                self._marks.pop(path, None)
        if self._copies:
            self._changed.update(changes)

    def position(self, writer: str, durable: Any) -> dict[str, Any]:
        """Return the position after all changes; see ``after`` for ``durable``.

        Raises:
            StorageError: a copy had to be written, and that failed.
        """
        paths = self._changed if self._copies else self._marks
        count = sum(max(1, len(self._marks.get(path, ()))) for path in paths)
        self._repeated += count
        is_due = not self._copies or self._repeated >= _REPEATS * len(self._marks)
        if count > FEW_MARKS and is_due:
            self._write_copy(writer)
            self._delete_superseded(durable)
        if not self._copies:
            return position_from_marks(self.marks())
        changed = sorted(self._changed)
        return {
            "version": 2,
            "copies": self._copies,
            "files": [_to_json(mark) for path in changed for mark in self._marks.get(path, ())],
            "gone": [path for path in changed if path not in self._marks],
        }

    def _load(self, position: Any, report: Report) -> None:
        changes, copies = _parse(position)
        for name in copies:
            try:
                self._marks, _ = _parse(read_json(self._files, name))
            except (NotFoundError, ReceiverError) as error:
                what = _ALL_AGAIN if name == copies[-1] else _SOME_AGAIN
                report(
                    f"{name} is damaged or gone, which told how far files are stored: {what}", error
                )
                continue
            if name == copies[0]:
                self._copies, self._changed = copies, set(changes)
            break
        self._marks = {path: marks for path, marks in {**self._marks, **changes}.items() if marks}

    def _write_copy(self, writer: str) -> None:
        if self._next_copy is None:
            self._next_copy = self._take_stock(writer)
        name = numbered_name(_PREFIX, writer, self._next_copy)
        create_json(self._files, name, position_from_marks(self.marks()))
        self._next_copy += 1
        self._own.append(name)
        self._copies = [name, *self._copies[:1]]
        self._changed.clear()
        self._repeated = 0

    def _take_stock(self, writer: str) -> int:
        """Find what earlier attempts left behind; return the number of this writer's next copy.

        A later epoch may have taken over by now. Its copies are named in positions that are not
        known here, so they are left alone.
        """
        own, number = parse_writer(writer), 0
        for file in numbered_files(self._files, _PREFIX):
            if own is None or file.writer.epoch <= own.epoch:
                self._superseded.append(file.name)
            if file.writer == own:
                number = max(number, file.number + 1)
        return number

    def _delete_superseded(self, durable: Any) -> None:
        named = [] if durable is None else durable.get("copies", [])
        if named and named[0] in self._own:
            at = self._own.index(named[0])
            self._superseded += self._own[:at]
            del self._own[:at]
        self._superseded = [
            name for name in self._superseded if name in named or not self._delete(name)
        ]

    def _delete(self, name: str) -> bool:
        try:
            self._files.delete(name)
        except StorageError as error:
            _log.warning("Cannot delete %s, tried again with the next copy: %s", name, error)
            return False
        return True


class _Position(DeferredPosition):
    """The position of one store."""

    __slots__ = ("_changes", "_durable", "_positions", "_writer")

    def __init__(self, positions: MarkPositions, changes: MarksByPath, durable: Any) -> None:
        self._positions = positions
        self._changes = changes
        self._durable = durable
        self._writer = ""

    def place(self, writer: str, start_offset: int, end_offset: int) -> None:
        """See DeferredPosition."""
        self._writer = writer
        self._positions.apply(self._changes)

    def value(self) -> Any:
        """See DeferredPosition."""
        return self._positions.position(self._writer, self._durable)


def by_path(marks: Iterable[Mark]) -> dict[str, list[Mark]]:
    """Return marks by their paths, in the order in which they are given."""
    found: dict[str, list[Mark]] = {}
    for mark in marks:
        found.setdefault(mark.path, []).append(mark)
    return found


def position_from_marks(marks: Iterable[Mark]) -> dict[str, Any]:
    """Return the position that tells all marks itself."""
    return {"version": 1, "files": [_to_json(mark) for mark in marks]}


def _to_json(mark: Mark) -> dict[str, Any]:
    return {
        "path": mark.path,
        "inode": mark.file_id.inode,
        "offset": mark.offset,
        "crc": mark.crc,
        "mtime_ns": mark.mtime_ns,
        **({"name": mark.name} if mark.name else {}),
        **({"whole": True} if mark.is_whole else {}),
    }


def _parse(position: Any) -> tuple[dict[str, list[Mark]], list[str]]:
    """Return the marks by path in a position, and the names of its copies.

    Raises:
        ReceiverError: it is none of a tail receiver, or of a newer version.
    """
    try:
        version = position["version"]
        if version not in (1, 2):
            raise ValueError(f"version {version!r}")
        marks = by_path(
            Mark(
                path=str(file["path"]),
                file_id=FileId(NO_DEVICE, int(file["inode"])),
                offset=int(file["offset"]),
                crc=int(file["crc"]),
                mtime_ns=int(file["mtime_ns"]),
                name=str(file.get("name", "")),
                is_whole=bool(file.get("whole", False)),
            )
            for file in position["files"]
        )
        if version == 1:
            return marks, []
        gone: dict[str, list[Mark]] = {str(path): [] for path in position["gone"]}
        return marks | gone, list(map(str, position["copies"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ReceiverError(
            "the stored position is not one of a tail receiver",
            operation="resume receiver",
            ids={"position": repr(position)[:200]},
            hint="give this receiver a stream of its own, or upgrade penstock",
        ) from error
